//! A program that is run for what it writes. Nothing that it has started outlives a run that lets go of it. Knows no
//! credential.

use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdout, Command};

/// What came of a program.
pub(crate) enum Output {
    /// It has ended, and had written this by then.
    Written(ExitStatus, Vec<u8>),
    /// It wrote more than the limit.
    TooMuch,
}

/// Runs a program to its end, without input, and gives what it has written to its standard output.
///
/// It has a process group of its own, which is killed as a whole where the future is dropped before the program has
/// ended. What the program leaves running when it ends is its own business, such as an agent that keeps a key, and is not
/// waited for: not even where it holds the program's standard output open.
///
/// # Errors
///
/// Why it cannot be run, or not be listened to.
pub(crate) async fn output(program: &str, arguments: &[String], limit: usize) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut process = command.spawn()?;
    let group = Group::of(&process);
    let mut stdout = process.stdout.take();
    let mut written = Vec::new();
    let status = loop {
        tokio::select! {
            read = read_more(&mut stdout, &mut written) => {
                if read? == 0 {
                    stdout = None;
                }
            }
            status = process.wait() => break status?,
        }
        if written.len() > limit {
            return Ok(Output::TooMuch);
        }
    };
    group.let_go();
    if let Some(stdout) = stdout {
        read_rest(stdout, limit + 1, &mut written).await?;
    }
    Ok(if written.len() > limit { Output::TooMuch } else { Output::Written(status, written) })
}

/// Waits for more, as long as there may be any.
async fn read_more(stdout: &mut Option<ChildStdout>, written: &mut Vec<u8>) -> io::Result<usize> {
    match stdout {
        Some(stdout) => stdout.read_buf(written).await,
        None => std::future::pending().await,
    }
}

/// What a program that has ended had written and nobody has read yet. It is in the pipe, so nothing is waited for.
#[cfg(unix)]
async fn read_rest(stdout: ChildStdout, limit: usize, written: &mut Vec<u8>) -> io::Result<()> {
    use std::io::Read;
    let pipe = stdout.into_owned_fd()?;
    rustix::io::ioctl_fionbio(&pipe, true)?;
    match std::fs::File::from(pipe).take(limit as u64).read_to_end(written) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// What a program that has ended had written and nobody has read yet.
#[cfg(not(unix))]
async fn read_rest(stdout: ChildStdout, limit: usize, written: &mut Vec<u8>) -> io::Result<()> {
    stdout.take(limit as u64).read_to_end(written).await?;
    Ok(())
}

/// The process group of a program that has not ended. Killed when it is dropped.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    #[cfg(unix)]
    fn of(process: &tokio::process::Child) -> Group {
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        Group { leader: id.and_then(rustix::process::Pid::from_raw) }
    }

    #[cfg(not(unix))]
    fn of(_: &tokio::process::Child) -> Group {
        Group {}
    }

    /// The program has ended: from now on its id may be somebody else's.
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no groups"))]
    fn let_go(mut self) {
        #[cfg(unix)]
        {
            self.leader = None;
        }
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // It fails only where nobody of the group is left.
            let _nobody_left = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}
