//! Arguments that are too large are refused by name before anything runs, and the run goes on.

use deed_tests::{Envelope, Message, Sandbox};
use serde_json::json;

#[test]
fn a_64_mb_argument_is_refused_and_the_run_goes_on() {
    let write = |path: &str, bytes: usize| json!({ "tool": "write_file", "input": { "path": path, "content": "x".repeat(bytes) } });
    let mission = json!({
        "objective": "Write too much",
        "tools": ["fs"],
        "model": { "script": [
            { "calls": [write("huge.txt", 64 << 20), write("small.txt", 5)] },
            // Each is small enough, all together are not.
            { "calls": [write("a.txt", 5 << 20), write("b.txt", 5 << 20), write("c.txt", 5 << 20)] },
            { "calls": [{ "tool": "finish", "input": { "summary": "Done." } }] } ] }
    });
    let sandbox = Sandbox::with(&mission, &[("a.txt", "alpha\n")]);
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    assert_eq!(done.status, "done");

    let transcript: Vec<Message> = sandbox.deed(["transcript", &done.run]).run().expect_code(0).json();
    let results: Vec<_> = transcript.into_iter().filter_map(|message| message.result).collect();
    let ok: Vec<_> = results.iter().map(|result| result.ok).collect();
    assert_eq!(ok, [false, true, true, true, false], "{results:?}");
    assert!(results[0].text.contains("`write_file`") && results[0].text.contains("67108"), "{results:?}");
    let files = sandbox.files();
    assert!(!files.0.contains_key("huge.txt"));
    assert_eq!(files.text("small.txt"), "xxxxx");
    assert_eq!((files.text("a.txt").len(), files.text("b.txt").len()), (5 << 20, 5 << 20));
    assert!(!files.0.contains_key("c.txt"));
    let verified = sandbox.deed(["verify"]).run().expect_code(0);
    assert!(verified.stdout.contains("\"damage\": []"), "{verified}");
}

#[test]
fn a_batch_that_is_too_large_is_refused_whole() {
    let call = json!({ "tool": "write_file", "input": { "path": "a.txt", "content": "x".repeat(5 << 20) } });
    let batch = json!({ "objective": "Write too much", "calls": [call, call, call] });
    let sandbox = Sandbox::with(&batch, &[]);
    let refused = sandbox.run(None).run().expect_code(2);
    assert!(refused.stderr.contains("split the batch"), "{refused}");
    assert!(!sandbox.journal().exists());
}
