//! A journal that is in use, from outside: through the socket beside it.
//!
//! Fault model: clients and owners that speak another version, send garbage, announce more than they send, or stop in the
//! middle. No time passes: what ends a conversation here is what is said in it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deed_journal::{
    Answer, Asked, Base, BootId, CommitError, Durability, EffectClass, Entropy, Idle, Intent, Journal,
    LiveError, LiveJournal, MessageBody, Op, OpenError, Options, Planned, ReadError, Reader, Role, Run,
    RunId, RunStatus, SessionId, Started, StepEvent, StepKind, StorageError, WaitId, WaitKind,
};
use serde_json::json;

/// Every identifier is different, also between two openings.
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        bytes[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    }
}

static ENTROPY_BEGINS: AtomicU64 = AtomicU64::new(1);

fn options() -> Options {
    let begin = ENTROPY_BEGINS.fetch_add(1 << 32, Ordering::Relaxed);
    Options { entropy: Arc::new(Counter(begin.into())), boot: None, idle: Idle::Never }
}

fn open(path: &Path) -> Journal {
    Journal::open(path, options()).unwrap()
}

fn shared(path: &Path) -> Journal {
    let mut journal = open(path);
    journal.share().unwrap();
    journal
}

fn run(byte: u8) -> Run {
    let (id, session) = (RunId::from_bytes([byte; 16]), SessionId::from_bytes([byte; 16]));
    Run::new(id, session, [byte; 16], "test", u64::from(byte))
}

fn create(run: &Run) -> Op {
    Op::CreateRun { run: Box::new(run.clone()), source: json!({ "of": run.id }) }
}

fn question(run: &Run) -> WaitId {
    WaitId { run: run.id, seq: 1, revision: 1 }
}

fn ask(run: &Run) -> Op {
    Op::Ask(asked(question(run)))
}

fn asked(id: WaitId) -> Asked {
    Asked {
        id,
        kind: WaitKind::Question,
        name: "ask_owner".into(),
        question: "Shall it?".into(),
        options: vec!["yes".into(), "no".into()],
        opened_ms: 1,
        expires_ms: None,
    }
}

fn says(option: &str) -> Answer {
    Answer { option: option.into(), text: Some("looked at it".into()), answered_ms: 2 }
}

/// Runs whose records fill some pages, and one value that is larger than any page.
fn fill(journal: &Journal) {
    for byte in 1..=40 {
        let run = run(byte);
        let size = if byte == 20 { 3 << 20 } else { 20_000 };
        let text = format!("{byte} ").repeat(size / 3);
        let base = Base { revision: 0, main: None };
        let messages = vec![MessageBody::text(Role::User, text)];
        let ops = vec![create(&run), Op::Append { session: run.session, base, messages }, ask(&run)];
        journal.commit(ops, Durability::Durable).unwrap();
    }
}

/// Everything that a reader reads.
fn all(reader: &Reader) -> String {
    let mut text = format!("{:?}", reader.verify().unwrap());
    for run in reader.runs().unwrap().items {
        let of = (
            reader.run_source(run.id).unwrap(),
            reader.steps(run.id).unwrap(),
            reader.waits(run.id).unwrap(),
        );
        let transcript = reader.transcript(run.session).unwrap();
        let key = reader.key(&run, 1).unwrap();
        writeln!(text, "{run:?} {of:?} {transcript:?} {key:?}").unwrap();
    }
    let nobody = RunId::from_bytes([0xee; 16]);
    write!(text, "{:?} {:?}", reader.sessions().unwrap(), reader.run(nobody).unwrap()).unwrap();
    text
}

fn socket(journal: &Path) -> PathBuf {
    PathBuf::from(format!("{}.socket", journal.display()))
}

#[test]
fn what_is_read_through_the_owner_is_what_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    fill(&journal);
    let live = LiveJournal::connect(&path).unwrap();
    assert!(matches!(Reader::open(&path), Err(OpenError::InUse { .. })));
    let through_the_owner = all(live.read());
    drop(live);
    drop(journal);
    assert!(!socket(&path).exists(), "it goes with its owner");
    assert_eq!(through_the_owner, all(&Reader::open(&path).unwrap()));
    assert!(through_the_owner.len() > 3 << 20);
}

#[test]
fn one_connection_is_one_view_and_nothing_of_it_can_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    journal.commit(vec![create(&run(1))], Durability::Riding).unwrap();
    let before = journal.read().io_counts().syncs;
    let live = LiveJournal::connect(&path).unwrap();
    assert_eq!(live.read().runs().unwrap().items.len(), 1);
    assert_eq!(journal.read().io_counts().syncs, before + 1, "what rode is durable before it is shown");

    journal.commit(vec![create(&run(2))], Durability::Durable).unwrap();
    assert_eq!(live.read().runs().unwrap().items.len(), 1, "of the instant of connecting");
    let later = LiveJournal::connect(&path).unwrap();
    assert_eq!(later.read().runs().unwrap().items.len(), 2);
    let synced = journal.read().io_counts().syncs;
    assert_eq!(synced, before + 2, "where nothing rides, nothing is synced");
}

#[test]
fn an_answer_through_the_owner_is_taken_and_refused_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    let (run, other) = (run(1), run(2));
    journal.commit(vec![create(&run), ask(&run)], Durability::Durable).unwrap();
    let live = LiveJournal::connect(&path).unwrap();
    let id = question(&run);

    let perhaps = live.answer(id, says("perhaps"));
    let Err(CommitError::NoSuchOption { expected, .. }) = perhaps else { panic!("{perhaps:?}") };
    assert_eq!(expected, ["yes", "no"]);
    let nobody = live.answer(question(&other), says("yes"));
    assert!(matches!(nobody, Err(CommitError::NoSuchWait(wait)) if wait == question(&other)), "{nobody:?}");
    let long = Answer { text: Some("x".repeat(2 << 20)), ..says("yes") };
    assert!(matches!(live.answer(id, long), Err(CommitError::TooLarge { .. })));

    let expired = WaitId { seq: 2, ..id };
    let ask = Op::Ask(Asked { expires_ms: Some(2), ..asked(expired) });
    journal.commit(vec![ask], Durability::Durable).unwrap();
    let late = live.answer(expired, says("yes"));
    assert!(matches!(late, Err(CommitError::Expired(wait)) if wait == expired), "{late:?}");

    let before = journal.read().io_counts().syncs;
    assert!(live.answer(id, says("yes")).unwrap());
    assert_eq!(journal.read().io_counts().syncs, before + 1, "it is durable");
    assert_eq!(journal.read().wait(id).unwrap().unwrap().answer, Some(says("yes")));
    assert!(!live.answer(id, says("yes")).unwrap(), "the same again changes nothing");
    let refused = live.answer(id, says("no"));
    assert!(matches!(refused, Err(CommitError::AnsweredBefore { first, .. }) if first == "yes"));
}

#[test]
fn the_socket_is_the_users_alone_and_found_whatever_the_length_of_its_path() {
    let dir = tempfile::tempdir().unwrap();
    // An address takes 108 bytes; both the directory and the name are longer.
    let directory = dir.path().join("d".repeat(150));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("j".repeat(200));
    // An owner that was killed left this one.
    let left = directory.join("left");
    drop(UnixListener::bind(dir.path().join("short")).unwrap());
    fs::rename(dir.path().join("short"), &left).unwrap();
    fs::rename(&left, socket(&path)).unwrap();
    assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Absent)));

    let journal = shared(&path);
    let about = fs::symlink_metadata(socket(&path)).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(LiveJournal::connect(&path).unwrap().read().runs().unwrap().items.len(), 0);
    drop(journal);
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let expected = [String::new(), ".owner".into()].map(|suffix| format!("{}{suffix}", "j".repeat(200)));
    assert_eq!(names, expected, "nothing else is left");
}

#[test]
fn what_is_no_socket_is_neither_replaced_nor_talked_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Absent)));
    fs::write(socket(&path), "mine").unwrap();
    let mut journal = open(&path);
    assert!(journal.share().is_err());
    journal.commit(vec![create(&run(1))], Durability::Durable).unwrap();
    assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Stranger)));
    assert_eq!(fs::read(socket(&path)).unwrap(), b"mine");
}

/// Send `bytes` to the owner and hear what it says until it closes.
fn converse(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket(path)).unwrap();
    // It may hang up in the middle.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

fn hello(version: u32) -> Vec<u8> {
    frame(&[b"deed live".as_slice(), &version.to_be_bytes()].concat())
}

#[test]
fn a_client_that_breaks_the_rules_is_dropped_and_the_next_one_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    fill(&journal);
    let welcome = hello(1);
    let said = |bytes: &[u8]| converse(&path, bytes);
    // The first frame.
    for garbage in
        [b"".as_slice(), b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x05hello", &frame(b"deed liv"), &frame(&[0; 64])]
    {
        assert_eq!(said(garbage), b"", "{garbage:?}");
    }
    assert_eq!(said(&frame(&[b'x'; 65])), b"", "longer than a first frame may be");
    // Of another version: told which one is spoken here, and nothing else.
    for version in [0, 2, u32::MAX] {
        let asks = [hello(version), frame(b"gA")].concat();
        assert_eq!(said(&asks), welcome, "version {version}");
    }
    // Later ones.
    let then = |bytes: &[u8]| said(&[&welcome, bytes].concat());
    let unknown = [welcome.clone(), frame(b"?")].concat();
    for garbage in
        [b"".as_slice(), b"x", b"p", b"p\0\0\0\0\x09A", b"p\0\0\0\0\0A", b"a{", b"a[1,2]", &[0xff; 1000]]
    {
        assert_eq!(then(&frame(garbage)), unknown, "{garbage:?}");
    }
    // Announced beyond what is taken, and cut in the middle of the length and of the frame.
    for torn in [&u32::MAX.to_be_bytes()[..], &(2u32 << 20).to_be_bytes(), b"\0\0", b"\0\0\0\x09gA"] {
        assert_eq!(then(torn), welcome, "{torn:?}");
    }
    // A client that goes while it is sent more than fits between the two.
    let mut stream = UnixStream::connect(socket(&path)).unwrap();
    stream.write_all(&[welcome.clone(), frame(b"p\0\0\0\0\0")].concat()).unwrap();
    let mut first = vec![0; welcome.len()];
    stream.read_exact(&mut first).unwrap();
    drop(stream);

    let live = LiveJournal::connect(&path).unwrap();
    assert_eq!(live.read().runs().unwrap().items.len(), 40);
}

#[test]
fn more_clients_than_are_served_at_once_are_served_in_turn_and_none_holds_the_owner_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    fill(&journal);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let live = LiveJournal::connect(&path).unwrap();
                assert_eq!(live.read().runs().unwrap().items.len(), 40);
            });
        }
    });
    // These stay, and say nothing; one waits to be let in.
    let idle: Vec<_> = (0..9).map(|_| UnixStream::connect(socket(&path)).unwrap()).collect();
    let live = journal;
    live.commit(vec![create(&run(99))], Durability::Durable).unwrap();
    drop(live);
    assert_eq!(Reader::open(&path).unwrap().runs().unwrap().items.len(), 41);
    drop(idle);
}

#[test]
fn who_reads_when_the_owner_ends_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let journal = shared(&path);
    fill(&journal);
    let live = LiveJournal::connect(&path).unwrap();
    assert_eq!(live.read().runs().unwrap().items.len(), 40);
    drop(journal);
    assert!(matches!(live.read().runs(), Err(StorageError::Lost(_))));
    assert!(matches!(live.read().open_runs(), Err(StorageError::Lost(_))));
    let answer = live.answer(question(&run(1)), says("yes"));
    assert!(
        matches!(answer, Err(CommitError::Read(ReadError::Storage(StorageError::Lost(_))))),
        "{answer:?}"
    );
    assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Absent)));
}

/// An owner that says `bytes` to one client once it has heard its first frame, and closes.
fn owner_that_says(path: &Path, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let _ = fs::remove_file(socket(path));
    let listener = UnixListener::bind(socket(path)).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; hello(1).len()];
        stream.read_exact(&mut heard).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut heard);
    })
}

#[test]
fn an_owner_of_another_version_is_named_and_one_that_breaks_the_rules_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    for version in [0, 2] {
        let owner = owner_that_says(&path, hello(version));
        let refused = LiveJournal::connect(&path).err().unwrap();
        assert!(matches!(refused, LiveError::OtherVersion { theirs, ours: 1 } if theirs == version));
        assert!(refused.to_string().contains(&format!("speaks version {version}")), "{refused}");
        drop(refused);
        owner.join().unwrap();
    }
    for garbage in [b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), frame(b"hello"), frame(&[0; 65])] {
        let owner = owner_that_says(&path, garbage);
        assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Stranger)));
        owner.join().unwrap();
    }
    let owner = owner_that_says(&path, Vec::new());
    assert!(matches!(LiveJournal::connect(&path), Err(LiveError::Absent)), "it closes");
    owner.join().unwrap();

    let endless = [u32::MAX.to_be_bytes().to_vec(), vec![b'p'; 1000]].concat();
    let loops = frame(b"p\x01");
    for reply in [endless, loops, frame(b""), frame(b"p\0\0\0\0\x09A"), frame(b"z"), b"\0\0\0\x09v".to_vec()]
    {
        let owner = owner_that_says(&path, [hello(1), reply].concat());
        let live = LiveJournal::connect(&path).unwrap();
        assert!(matches!(live.read().runs(), Err(StorageError::Lost(_))));
        assert!(matches!(live.read().runs(), Err(StorageError::Lost(_))), "and it stays so");
        drop(live);
        owner.join().unwrap();
    }
}

#[test]
fn a_backup_is_one_instant_whole_and_made_whoever_owns_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("journal.redb"), dir.path().join("backup.redb"));
    let journal = shared(&path);
    fill(&journal);
    let live = LiveJournal::connect(&path).unwrap();
    journal.commit(vec![create(&run(99))], Durability::Durable).unwrap();
    let mut told = (0, 0);
    let done = live.read().backup(&to, &mut |records, bytes| told = (records, bytes)).unwrap();
    assert_eq!((done.records, done.damaged), (live.read().verify().unwrap().records, 0));
    assert_eq!((told.0, done.bytes), (done.records, fs::metadata(&to).unwrap().len()));
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = Reader::open(&to).unwrap();
    assert_eq!(all(&copy), all(live.read()), "of the instant of connecting");
    assert_eq!(copy.verify().unwrap().damage.len(), 0);

    let again = live.read().backup(&to, &mut |_, _| {});
    assert!(again.unwrap_err().to_string().contains("exists"), "nothing is replaced");
    let nowhere = live.read().backup(&dir.path().join("absent/backup.redb"), &mut |_, _| {});
    assert!(nowhere.unwrap_err().to_string().contains("absent/backup.redb"));
    drop(live);
    drop(journal);

    // From the owner's own handle, and from the file.
    let journal = open(&path);
    let own = dir.path().join("own.redb");
    journal.read().backup(&own, &mut |_, _| {}).unwrap();
    drop(journal);
    let reader = Reader::open(&path).unwrap();
    let from_file = dir.path().join("file.redb");
    reader.backup(&from_file, &mut |_, _| {}).unwrap();
    for backup in [own, from_file] {
        assert_eq!(all(&Reader::open(&backup).unwrap()), all(&reader));
    }
    let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("deed-backup")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_backup_cut_short_leaves_nothing_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("journal.redb"), dir.path().join("backup.redb"));
    let journal = shared(&path);
    fill(&journal);
    let live = LiveJournal::connect(&path).unwrap();
    let mut journal = Some(journal);
    let mut told = 0;
    let cut = live.read().backup(&to, &mut |records, _| {
        told = records;
        journal.take();
    });
    assert!(
        told > 0 && matches!(cut, Err(deed_journal::BackupError::Read(StorageError::Lost(_)))),
        "{cut:?}"
    );
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["journal.redb", "journal.redb.owner"]);
}

const BOOT: &str = "00000000-0000-0000-0000-000000000001";

fn open_with_marks(path: &Path) -> Journal {
    Journal::open(path, Options { boot: BootId::parse(BOOT), ..options() }).unwrap()
}

/// Begin the first attempt of a call: its intent is durable, and it has not started.
fn intend(journal: &Journal, run: &Run) {
    let planned = Planned::new(StepKind::ToolCall, "shell", EffectClass::NonIdempotent, json!({}), 0);
    let intent = Intent { attempt: 1, marks: journal.mark_place(), ..intent() };
    let step = |event| Op::Step { run: run.id, seq: 1, event };
    let ops = vec![create(run), step(StepEvent::Planned(planned)), step(StepEvent::Intent(intent))];
    journal.commit(ops, Durability::Durable).unwrap();
}

fn intent() -> Intent {
    Intent { attempt: 1, clock_ms: 0, marks: None }
}

fn started(journal: &Journal, run: &Run) -> Started {
    journal.started(run.id, &journal.read().step(run.id, 1).unwrap().unwrap())
}

/// The original goes on after a backup was made: what the backup finds intended may have run since. Marks lie beside the
/// journal and not in it, so wherever the backup is put, it must not take their absence for a proof.
#[test]
fn a_restored_backup_proves_nothing_that_the_journal_did_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("journal.redb"), dir.path().join("backup.redb"));
    let journal = open_with_marks(&path);
    let (waits, goes_on) = (run(1), run(2));
    intend(&journal, &waits);
    intend(&journal, &goes_on);
    journal.read().backup(&to, &mut |_, _| {}).unwrap();
    assert_eq!(started(&journal, &goes_on), Started::No, "it provably has not begun");
    journal.mark_start(goes_on.id, 1, 1).unwrap();
    drop(journal);

    // Elsewhere there are no marks, which proves nothing.
    let copy = dir.path().join("copy.redb");
    fs::copy(&to, &copy).unwrap();
    let restored = open_with_marks(&copy);
    assert_eq!(restored.store(), open_with_marks(&path).store(), "it is the same store");
    assert_eq!([started(&restored, &waits), started(&restored, &goes_on)], [Started::Unknown; 2]);
    drop(restored);

    // In the place of the journal the marks are the journal's, and know what it began after the backup.
    fs::rename(&to, &path).unwrap();
    let restored = open_with_marks(&path);
    assert_eq!(started(&restored, &waits), Started::No, "nobody has begun it");
    assert_eq!(started(&restored, &goes_on), Started::Yes);
    drop(restored);
    fs::remove_file(dir.path().join("journal.redb.marks")).unwrap();
    let restored = open_with_marks(&path);
    assert_eq!([started(&restored, &waits), started(&restored, &goes_on)], [Started::Unknown; 2]);

    let done = Run { status: RunStatus::Done, ..waits };
    restored.commit(vec![Op::UpdateRun(Box::new(done))], Durability::Durable).unwrap();
}
