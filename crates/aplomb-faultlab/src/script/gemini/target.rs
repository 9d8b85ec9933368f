//! What the path of a request says: the model, and how it is to answer. Knows no body.

/// The path of a request to Gemini: `…/models/MODEL:METHOD`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::script) struct Target<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    /// Whether a stream is to consist of events. Else it is one long JSON array.
    pub(super) events: bool,
}

impl<'a> Target<'a> {
    /// `None` if the path is another one.
    pub(in crate::script) fn of(path: &'a str) -> Option<Self> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (_, last) = path.rsplit_once("/models/")?;
        let (model, method) = last.split_once(':')?;
        let stream = match method {
            "generateContent" => false,
            "streamGenerateContent" => true,
            _ => return None,
        };
        let events = query.split('&').any(|part| part == "alt=sse");
        (!model.is_empty()).then_some(Self { model, stream, events })
    }

    /// Whether the model is of the third generation or later: those sign every call and miss a signature that
    /// does not come back (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
    pub(super) fn always_signs(model: &str) -> bool {
        let generation = model.strip_prefix("gemini-").map(|rest| rest.split(['.', '-']).next());
        generation.flatten().and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number >= 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_model_and_the_way_to_answer() {
        let target = |path| Target::of(path).map(|target| (target.model, target.stream, target.events));
        assert_eq!(target("/v1beta/models/m:generateContent"), Some(("m", false, false)));
        assert_eq!(target("/v1beta/models/m:generateContent?key=k&alt=sse"), Some(("m", false, true)));
        assert_eq!(target("/x/models/m:streamGenerateContent?alt=sse"), Some(("m", true, true)));
        assert_eq!(target("/x/models/m:streamGenerateContent"), Some(("m", true, false)));
        for other in ["/v1beta/models/m:embedContent", "/v1beta/models/m", "/models/:generateContent", "/x"] {
            assert_eq!(target(other), None, "{other}");
        }
    }

    #[test]
    fn from_the_third_generation_on_models_always_sign() {
        for (model, signs) in [
            ("gemini-3-pro-preview", true),
            ("gemini-3.8-flash", true),
            ("gemini-4-argon", true),
            ("gemini-10", true),
            ("gemini-2.5-flash", false),
            ("gemini-flash-latest", false),
            ("faultlab", false),
        ] {
            assert_eq!(Target::always_signs(model), signs, "{model}");
        }
    }
}
