//! The reference mission, undisturbed: what all the crash tests compare with is itself as it should be.

use std::sync::LazyLock;

use deed_tests::{Ending, Passage, Sandbox, Snapshot, reference, says_yes, shape};

static REFERENCE: LazyLock<(Passage, Snapshot)> =
    LazyLock::new(|| reference("fix-add", &says_yes).unwrap_or_else(|error| panic!("{error}")));

/// Every step of the mission, in order.
const SHAPE: &str = "\
1:setup/prefix:completed
2:setup/git_branch:completed
3:policy/snapshot:completed
4:model_call/scripted:completed
5:tool_call/read_file:completed
6:tool_call/read_file:completed
7:tool_call/list_dir:completed
8:policy/snapshot:completed
9:model_call/scripted:completed
10:tool_call/write_file:completed
11:tool_call/edit_file:completed
12:policy/snapshot:completed
13:model_call/scripted:completed
14:tool_call/shell:completed
15:policy/snapshot:completed
16:model_call/scripted:completed
17:tool_call/git_commit:completed
18:policy/snapshot:completed
19:model_call/scripted:completed
20:wait/ask_owner:completed
21:now/answered_at:completed
22:tool_call/ask_owner:completed
23:policy/snapshot:completed
24:model_call/scripted:completed
25:tool_call/update_criteria:completed
26:tool_call/git_status:completed
27:policy/snapshot:completed
28:model_call/scripted:completed
29:tool_call/finish:completed
";

#[test]
fn b01_an_undisturbed_mission_takes_two_processes_without_a_terminal() {
    let (passage, _) = &*REFERENCE;
    assert_eq!(passage.kills, 0);
    assert_eq!(passage.endings(), [Ending::Exit(4), Ending::Exit(0)]);
    assert_eq!(passage.envelope.status, "done");
    assert_eq!(passage.envelope.result.as_deref(), Some("add() adds again."));
    assert_eq!(passage.envelope.waits, []);
    assert_eq!(passage.envelope.usage.turns, 7);
    assert_eq!(passage.envelope.usage.repeated_model_calls, 0);
    let criteria: Vec<_> =
        passage.envelope.criteria.iter().map(|row| (row.criterion.as_str(), row.met)).collect();
    assert_eq!(criteria, [("add() returns the sum", true), ("the fix is committed", true)]);
}

#[test]
fn b02_the_files_the_history_and_the_steps_are_the_expected_ones() {
    let (_, snapshot) = &*REFERENCE;
    assert_eq!(snapshot.files.paths(), ["a.txt", "counter.log", "notes.md", "src/calc.js"]);
    assert_eq!(snapshot.files.text("a.txt"), "alpha\n");
    assert_eq!(snapshot.files.text("counter.log"), "tick\n");
    assert_eq!(snapshot.files.text("notes.md"), "# Notes\nadd() subtracted instead of adding.\n");
    assert_eq!(snapshot.files.text("src/calc.js"), "export const add = (a, b) => a + b;\n");
    let subjects: Vec<_> = snapshot.history.iter().map(deed_tests::Commit::subject).collect();
    assert_eq!(subjects, ["Fix add()", "init"]);
    assert_eq!(snapshot.status, Vec::<String>::new());
    assert_eq!(shape(&snapshot.steps), SHAPE);
    assert!(snapshot.steps.iter().all(|step| step.attempt == 1 && !step.landed_before));
}

#[test]
fn b03_there_are_ten_tool_results_all_of_them_ok() {
    let (_, snapshot) = &*REFERENCE;
    let results: Vec<_> =
        snapshot.typed_messages().into_iter().filter_map(|message| message.result).collect();
    let tools: Vec<_> = results.iter().map(|result| result.tool.as_str()).collect();
    assert_eq!(
        tools,
        [
            "read_file",
            "read_file",
            "list_dir",
            "write_file",
            "edit_file",
            "shell",
            "git_commit",
            "ask_owner",
            "update_criteria",
            "git_status",
        ]
    );
    assert!(results.iter().all(|result| result.ok), "{results:?}");
    assert_eq!(results[0].text.trim_end(), "alpha");
    assert!(results[5].text.contains('1'), "the command counts one line: {}", results[5].text);
    assert!(results[7].text.contains("yes"), "the owner's answer is there: {}", results[7].text);
}

#[test]
fn b04_processes_end_with_their_documented_codes_and_nothing_is_reconciled() {
    let sandbox = Sandbox::of("fix-add");
    let run = sandbox.run(None).run().expect_code(4);
    let waits = sandbox.waits();
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!((waits[0].kind.as_str(), waits[0].name.as_str()), ("question", "ask_owner"));
    assert_eq!(waits[0].options, ["yes", "no"]);
    assert_eq!(waits[0].seq, 20);
    assert!(waits[0].question.contains("Is the fix what you wanted?"));

    // Still waiting: the same code, the same question, and no second one.
    let again = sandbox.resume(None).run().expect_code(4);
    assert_eq!(again.json::<deed_tests::Envelope>(), run.json());
    assert_eq!(sandbox.waits(), waits);

    sandbox.answer(&waits[0].wait, "yes").unwrap();
    let done: deed_tests::Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(done.status, "done");
    assert_eq!(sandbox.waits(), []);

    let idle = sandbox.resume(None).run().expect_code(0);
    assert!(idle.stderr.contains("nothing to resume"), "{idle}");
}

#[test]
fn every_request_to_the_model_is_logged_once() {
    let (_, snapshot) = &*REFERENCE;
    assert_eq!(snapshot.requests.len(), 7);
    snapshot.requests_are_prefixes().unwrap();
}

#[test]
fn the_run_works_on_a_branch_of_its_own() {
    let (passage, snapshot) = &*REFERENCE;
    let branch = format!("refs/heads/deed/{}", &passage.envelope.run[..8]);
    let (newest, init) = (&snapshot.history[0], &snapshot.history[1]);
    assert_eq!(
        snapshot.references,
        [format!("{branch} {}", newest.id), format!("refs/heads/main {}", init.id)]
    );
}

#[test]
fn two_runs_with_one_seed_give_equal_bytes() {
    let (_, second) = reference("fix-add", &says_yes).unwrap();
    second.compare(&REFERENCE.1).unwrap();
    assert_eq!(second.requests, REFERENCE.1.requests);
}

#[test]
fn another_seed_gives_another_run() {
    let sandbox = Sandbox::of("fix-add").seeded("8");
    let passage = sandbox.run_to_end(None, &says_yes).unwrap();
    assert_ne!(passage.envelope.run, REFERENCE.0.envelope.run);
    assert_ne!(passage.envelope.session, REFERENCE.0.envelope.session);
}
