//! The program from the outside: its parts are everywhere where Aplomb's own are.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use serde_json::{Value, json};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/agent.json");
const DESK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/desk.json");
const OFFICE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/office.json");

fn own_parts(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-parts"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_agent_of_own_parts_runs() {
    let (code, stdout, stderr) =
        own_parts(&["run", CONFIG, "--input", "How is parcel A17?", "--format", "text"]);
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "I have looked: at the harbour. Have a nice day.\n"),
        "{stderr}"
    );
}

#[test]
fn an_agent_runs_on_a_provider_an_executor_and_an_assembler_of_ones_own() {
    let (code, stdout, stderr) =
        own_parts(&["run", DESK, "--input", "How is parcel A17?", "--format", "text"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "The desk says: at the harbour.\n"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_runs_on_a_vendor_a_session_store_and_an_event_sink_of_ones_own() {
    let script = json!({
        "steps": [
            { "reply": { "message": { "tool_calls": [{ "name": "parcels", "arguments": { "number": "A17" } }] } } },
            { "reply": { "message": { "text": "It is {{tool_result}}." } } }
        ],
        "at_end": "restart"
    });
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book.jsonl");
    let address = format!("agents.office.llm.api_base={}", server.base_url());
    let place = format!("session.config.file={}", book.to_str().unwrap());
    let ask = |session: &str| {
        let input = ["run", OFFICE, "--input", "How is parcel A17?", "--session-id", session];
        own_parts(&[&input[..], &["--set", &address, "--set", &place, "--format", "text"]].concat())
    };
    // Two sessions, one of them with a name that is no path.
    for session in ["../visitor", "other", "../visitor"] {
        let (code, stdout, stderr) = ask(session);
        assert_eq!((code, stdout.as_str()), (Some(0), "It is at the harbour.\n"), "{stderr}");
        let heard = stderr.lines().filter(|line| line.starts_with("ding:")).collect::<Vec<_>>();
        assert_eq!(heard, [r#"ding: "parcels" {"number":"A17"}"#], "{stderr}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 6); // two for each run: the call, and the answer to its result
    assert!(requests.iter().all(|request| request.path == "/v1/chat/completions"), "{requests:?}");
    let lines = std::fs::read_to_string(&book).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sessions: Vec<_> = lines.iter().map(|line| line["session_id"].as_str().unwrap()).collect();
    assert_eq!(sessions, ["../visitor", "other", "../visitor"]);
    let roles = |line: &Value| {
        let messages = line["messages"].as_array().unwrap();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(&lines[0]), ["user", "assistant", "tool", "assistant"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_asked_of_a_config_is_answered_for_a_provider_of_ones_own_too() {
    let (code, stdout, stderr) = own_parts(&["validate", DESK, "--strict"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let (code, stdout, stderr) = own_parts(&["policy", DESK]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let folder = std::env::temp_dir();
    let (code, stdout, stderr) = own_parts(&["doctor", DESK, "--data-dir", folder.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("model of desk: in this process; nothing is sent"), "{stdout}");
    let (_, list, _) = own_parts(&["list-plugins", "--seam", "provider"]);
    assert!(list.contains("desk                   this program's  Looks parcels up,"), "{list}");
    assert!(
        list.contains("harbour                this program's  OpenAI's Chat Completions, at http://127"),
        "{list}"
    );
    for command in ["validate", "policy"] {
        let (code, stdout, stderr) = own_parts(&[command, OFFICE]);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
    }
    let (_, schema, _) = own_parts(&["schema", "--seam", "provider", "--plugin", "desk"]);
    assert!(schema.contains("\"greeting\""), "{schema}");
}

#[test]
fn an_error_of_ones_own_is_in_the_events_with_its_code() {
    let (code, stdout, stderr) = own_parts(&["run", CONFIG, "--input", "How is Z9?", "--format", "events"]);
    assert_eq!(code, Some(0), "{stderr}");
    let failed = stdout.lines().find(|line| line.contains("\"tool.failed\"")).unwrap();
    assert!(failed.contains("parcels.unknown") && failed.contains("receipt"), "{failed}");
    let (_, tree, _) = own_parts(&["errors"]);
    assert!(tree.contains("parcels.unknown"), "{tree}");
}

#[test]
fn its_config_is_validated_and_its_plugins_are_listed_with_their_schemas() {
    let (code, stdout, stderr) = own_parts(&["validate", CONFIG, "--strict"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let (_, list, _) = own_parts(&["list-plugins"]);
    for line in [
        "polite                 this program's  Answers like `react`, and closes politely.",
        "notes",
        "parcels",
    ] {
        assert!(list.contains(line), "{line}: {list}");
    }
    let (_, schema, _) = own_parts(&["schema", "--plugin", "notes"]);
    assert!(schema.contains("\"maximum\": 1000"), "{schema}");
}
