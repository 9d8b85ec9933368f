//! `aplomb doctor`: whether everything is in place.

use aplomb::plugins::Registry;

use crate::args::DoctorArguments;

pub(crate) async fn doctor(_arguments: DoctorArguments, _registry: Registry) -> u8 {
    0
}
