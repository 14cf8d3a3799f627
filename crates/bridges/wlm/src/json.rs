//! The JSON form of calls and replies.

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::error::{ErrorKind, WlmError};

/// Version of the JSON form. A call states the version that its author has read; fields and
/// functions may be added to a version, but none is changed or removed.
pub const VERSION: u64 = 1;

/// Parses a call: `{"version": 1, "function": "stage_in", "job": "42"}`.
///
/// # Errors
/// The text is not such an object; the message names what is wrong.
pub fn parse_call(text: &str) -> Result<Call, WlmError> {
    let invalid = |message: String| WlmError::new(ErrorKind::Invalid, message);
    let parsed = serde_json::from_str::<Value>(text);
    let mut value = parsed.map_err(|error| invalid(format!("the call is not JSON: {error}")))?;
    let fields = value.as_object_mut();
    let fields = fields.ok_or_else(|| invalid("the call is not a JSON object".to_owned()))?;
    match fields.remove("version") {
        Some(version) if version == json!(VERSION) => {}
        Some(version) => {
            let message = format!("version {version} is not supported; this is version {VERSION}");
            return Err(invalid(message));
        }
        None => return Err(invalid(format!("the call has no `version`; write {VERSION}"))),
    }
    serde_json::from_value(value).map_err(|error| invalid(format!("the call: {error}")))
}

/// The JSON text of an outcome: `{"version": 1, "result": {…}}`, or
/// `{"version": 1, "error": {"kind": "busy", "message": "…"}}`.
pub fn reply_text(outcome: &Result<Reply, WlmError>) -> String {
    let value = match outcome {
        Ok(reply) => json!({"version": VERSION, "result": reply}),
        Err(error) => json!({"version": VERSION, "error": error}),
    };
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::{Call, ErrorKind, Reply, WlmError, parse_call, reply_text};

    fn refusal(text: &str) -> String {
        let error = parse_call(text).expect_err(text);
        assert_eq!(error.kind, ErrorKind::Invalid);
        error.message
    }

    #[test]
    fn call_of_this_version_is_parsed() {
        let call = parse_call(r#"{"version":1,"function":"teardown","job":"42"}"#);
        assert_eq!(call, Ok(Call::Teardown { job: "42".to_owned(), hurry: false }));
        assert_eq!(parse_call(r#"{"version":1,"function":"show"}"#), Ok(Call::Show {}));
    }

    #[test]
    fn wrong_call_is_refused_with_the_mistake() {
        assert!(refusal("setup").contains("not JSON"));
        assert!(refusal(r#"{"function":"show"}"#).contains("no `version`"));
        assert!(refusal(r#"{"version":2,"function":"show"}"#).contains("version 2"));
        assert!(refusal(r#"{"version":1,"function":"fly"}"#).contains("unknown variant `fly`"));
        assert!(refusal(r#"{"version":1,"function":"stage_in"}"#).contains("missing field `job`"));
        let typo = r#"{"version":1,"function":"teardown","job":"1","hury":true}"#;
        assert!(refusal(typo).contains("unknown field `hury`"));
    }

    #[test]
    fn replies_have_a_result_or_an_error() {
        assert_eq!(reply_text(&Ok(Reply::Done {})), r#"{"version":1,"result":{}}"#);
        let error = WlmError::new(ErrorKind::NoSuchJob, "no job");
        let text = r#"{"version":1,"error":{"kind":"no_such_job","message":"no job"}}"#;
        assert_eq!(reply_text(&Err(error)), text);
    }
}
