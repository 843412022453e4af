//! What a journal expects of a store, checked on every store there is: redb on a file, redb on a disk of the tests, and
//! the store in memory. Whoever adds a store adds it to `STORES`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(clippy::print_stdout, reason = "a failed test says on which store it failed")]

use std::path::PathBuf;
use std::sync::mpsc;

use deed_journal::test_support::{FaultDisk, ImageKind, MemoryStore, RedbStore, Seeded, Snapshot, Storage};
use deed_journal::{Durability, IoCounts, StorageError};

type Opened = Box<dyn Storage>;

/// A place that holds one store.
trait Place {
    fn open(&mut self) -> Opened;

    /// Lose power under the open store, and open what is left.
    fn crash(&mut self, store: Opened) -> Opened;

    /// Open the store, which was closed, for reading.
    fn open_read_only(&mut self) -> Opened;
}

struct File {
    dir: tempfile::TempDir,
    crashes: u32,
}

impl File {
    fn path(&self) -> PathBuf {
        self.dir.path().join(format!("store-{}", self.crashes))
    }
}

impl Place for File {
    fn open(&mut self) -> Opened {
        Box::new(RedbStore::open(&self.path()).unwrap())
    }

    fn crash(&mut self, store: Opened) -> Opened {
        // Nothing writes while the file is copied, so the copy is what the death of the process would leave.
        let left = std::fs::read(self.path()).unwrap();
        drop(store);
        self.crashes += 1;
        std::fs::write(self.path(), left).unwrap();
        self.open()
    }

    fn open_read_only(&mut self) -> Opened {
        Box::new(RedbStore::open_read_only(&self.path()).unwrap())
    }
}

struct Disk(FaultDisk);

impl Place for Disk {
    fn open(&mut self) -> Opened {
        Box::new(RedbStore::open_medium(self.0.medium()).unwrap())
    }

    fn crash(&mut self, store: Opened) -> Opened {
        let history = self.0.history();
        drop(store);
        let image = history.crashes().last().unwrap().image(ImageKind::Lost, &mut Seeded::new(0));
        self.0 = FaultDisk::with(image.bytes);
        self.open()
    }

    fn open_read_only(&mut self) -> Opened {
        Box::new(RedbStore::open_medium_read_only(self.0.medium()).unwrap())
    }
}

struct Memory(MemoryStore);

impl Place for Memory {
    fn open(&mut self) -> Opened {
        Box::new(self.0.reopen())
    }

    fn crash(&mut self, store: Opened) -> Opened {
        self.0.crash();
        drop(store);
        self.open()
    }

    fn open_read_only(&mut self) -> Opened {
        Box::new(self.0.reopen_read_only())
    }
}

type Make = fn() -> Box<dyn Place>;

const STORES: [(&str, Make); 3] = [
    ("redb on a file", || Box::new(File { dir: tempfile::tempdir().unwrap(), crashes: 0 })),
    ("redb on a disk of the tests", || Box::new(Disk(FaultDisk::new()))),
    ("memory", || Box::new(Memory(MemoryStore::new()))),
];

fn on_every_store(check: impl Fn(&mut dyn Place)) {
    for (name, make) in STORES {
        println!("on {name}:");
        check(&mut *make());
    }
}

type Pair = (&'static str, &'static str);

fn put(store: &dyn Storage, pairs: &[Pair], durability: Durability) {
    let mut transaction = store.begin().unwrap();
    for (key, value) in pairs {
        transaction.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
    transaction.commit(durability).unwrap();
}

fn get(view: &(impl Snapshot + ?Sized), key: &str) -> Option<String> {
    view.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value).unwrap())
}

fn scan(view: &(impl Snapshot + ?Sized), prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    view.scan(prefix, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        true
    })
    .unwrap();
    found
}

fn keys(view: &(impl Snapshot + ?Sized), prefix: &[u8]) -> Vec<Vec<u8>> {
    scan(view, prefix).into_iter().map(|(key, _)| key).collect()
}

fn keys_after(view: &(impl Snapshot + ?Sized), prefix: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    view.scan_after(prefix, after, &mut |key, _| {
        found.push(key.to_vec());
        true
    })
    .unwrap();
    found
}

fn texts(view: &(impl Snapshot + ?Sized), prefix: &str) -> Vec<String> {
    let keys = keys(view, prefix.as_bytes());
    keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

#[test]
fn an_empty_store_holds_nothing_and_can_be_read_at_once() {
    on_every_store(|place| {
        let store = place.open();
        let view = store.snapshot().unwrap();
        assert_eq!(get(&*view, "a"), None);
        assert_eq!(texts(&*view, ""), [""; 0]);
        let transaction = store.begin().unwrap();
        assert_eq!(get(&*transaction, "a"), None);
        assert_eq!(texts(&*transaction, ""), [""; 0]);
    });
}

#[test]
fn what_is_put_is_got_until_it_is_replaced_or_deleted() {
    on_every_store(|place| {
        let store = place.open();
        put(&*store, &[("a", "1"), ("b", "2"), ("", "empty key"), ("c", "")], Durability::Durable);
        let mut transaction = store.begin().unwrap();
        transaction.put(b"a", b"new").unwrap();
        transaction.delete(b"b").unwrap();
        transaction.delete(b"never there").unwrap();
        assert_eq!(get(&*transaction, "a").as_deref(), Some("new"), "a transaction sees its own writes");
        assert_eq!(get(&*transaction, "b"), None);
        assert_eq!(texts(&*transaction, ""), ["", "a", "c"]);
        transaction.commit(Durability::Durable).unwrap();
        let view = store.snapshot().unwrap();
        let values = ["", "a", "b", "c"].map(|key| get(&*view, key));
        assert_eq!(values.each_ref().map(Option::as_deref), [Some("empty key"), Some("new"), None, Some("")]);
    });
}

#[test]
fn values_of_any_size_come_back_whole() {
    on_every_store(|place| {
        let mut store = place.open();
        let sizes = [0_usize, 1, 255, 4095, 4096, 4097, 70_000, 3_000_000];
        let value =
            |size: usize| -> Vec<u8> { (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect() };
        let mut transaction = store.begin().unwrap();
        for size in sizes {
            transaction.put(&size.to_be_bytes(), &value(size)).unwrap();
        }
        transaction.commit(Durability::Durable).unwrap();
        store = place.crash(store);
        for size in sizes {
            let found = store.snapshot().unwrap().get(&size.to_be_bytes()).unwrap();
            assert!(found == Some(value(size)), "{size} bytes");
        }
    });
}

#[test]
fn a_scan_is_in_key_order_keeps_to_its_prefix_and_stops_when_told() {
    on_every_store(|place| {
        let store = place.open();
        let mut all: Vec<&[u8]> = vec![
            b"",
            b"a",
            b"a\0",
            b"a\0\0",
            b"a\x7f",
            b"a\xff",
            b"a\xff\xff",
            b"a\xff\xff\x01",
            b"b",
            b"\xff",
            b"\xff\xff",
            b"\xff\xff\0",
        ];
        let mut transaction = store.begin().unwrap();
        for key in all.iter().rev() {
            transaction.put(key, b"").unwrap();
        }
        let prefixes: [&[u8]; 9] =
            [b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"\xff", b"\xff\xff", b"ab", b"zz"];
        all.sort_unstable();
        for prefix in prefixes {
            let expected: Vec<&[u8]> = all.iter().copied().filter(|key| key.starts_with(prefix)).collect();
            assert_eq!(keys(&*transaction, prefix), expected, "in a transaction, {prefix:?}");
        }
        transaction.commit(Durability::Durable).unwrap();
        let view = store.snapshot().unwrap();
        for prefix in prefixes {
            let expected: Vec<&[u8]> = all.iter().copied().filter(|key| key.starts_with(prefix)).collect();
            assert_eq!(keys(&*view, prefix), expected, "in a snapshot, {prefix:?}");
        }
        for (prefix, after) in
            prefixes.iter().flat_map(|prefix| all.iter().map(move |after| (*prefix, *after)))
        {
            let expected: Vec<&[u8]> =
                all.iter().copied().filter(|key| key.starts_with(prefix) && *key > after).collect();
            assert_eq!(keys_after(&*view, prefix, after), expected, "{prefix:?} behind {after:?}");
        }
        let mut seen = 0;
        view.scan(b"a", &mut |_, _| {
            seen += 1;
            seen < 3
        })
        .unwrap();
        assert_eq!(seen, 3);
    });
}

#[test]
fn a_snapshot_does_not_see_later_commits() {
    on_every_store(|place| {
        let store = place.open();
        put(&*store, &[("a", "1"), ("b", "1")], Durability::Durable);
        let before = store.snapshot().unwrap();
        put(&*store, &[("a", "2"), ("c", "2")], Durability::Riding);
        let between = store.snapshot().unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.delete(b"b").unwrap();
        transaction.commit(Durability::Durable).unwrap();
        assert_eq!((get(&*before, "a").as_deref(), texts(&*before, "").join(" ")), (Some("1"), "a b".into()));
        assert_eq!(
            (get(&*between, "a").as_deref(), texts(&*between, "").join(" ")),
            (Some("2"), "a b c".into())
        );
        assert_eq!(texts(&*store.snapshot().unwrap(), ""), ["a", "c"]);
    });
}

#[test]
fn an_open_transaction_is_seen_by_nobody_and_a_dropped_one_leaves_nothing() {
    on_every_store(|place| {
        let mut store = place.open();
        put(&*store, &[("a", "1")], Durability::Durable);
        let mut transaction = store.begin().unwrap();
        transaction.put(b"a", b"2").unwrap();
        transaction.put(b"b", b"2").unwrap();
        assert_eq!(get(&*store.snapshot().unwrap(), "a").as_deref(), Some("1"));
        drop(transaction);
        let check = |store: &dyn Storage| {
            assert_eq!(texts(&*store.snapshot().unwrap(), ""), ["a"]);
            assert_eq!(get(&*store.snapshot().unwrap(), "a").as_deref(), Some("1"));
        };
        check(&*store);
        put(&*store, &[], Durability::Durable);
        store = place.crash(store);
        check(&*store);
    });
}

#[test]
fn a_second_transaction_waits_for_the_first() {
    on_every_store(|place| {
        let store = place.open();
        let (begun, second_has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut first = store.begin().unwrap();
            scope.spawn(|| {
                let mut second = store.begin().unwrap();
                begun.send(get(&*second, "a")).unwrap();
                second.put(b"b", b"second").unwrap();
                second.commit(Durability::Durable).unwrap();
            });
            first.put(b"a", b"first").unwrap();
            assert!(second_has_begun.try_recv().is_err(), "two transactions at once");
            first.commit(Durability::Durable).unwrap();
            assert_eq!(second_has_begun.recv().unwrap().as_deref(), Some("first"));
        });
        assert_eq!(texts(&*store.snapshot().unwrap(), ""), ["a", "b"]);
    });
}

#[test]
fn a_riding_commit_is_visible_at_once_and_lost_whole_by_a_crash() {
    on_every_store(|place| {
        let mut store = place.open();
        put(&*store, &[("a", "durable")], Durability::Durable);
        put(&*store, &[("a", "riding"), ("b", "riding")], Durability::Riding);
        assert_eq!(get(&*store.snapshot().unwrap(), "a").as_deref(), Some("riding"));
        assert_eq!(get(&*store.begin().unwrap(), "b").as_deref(), Some("riding"));
        store = place.crash(store);
        assert_eq!(get(&*store.snapshot().unwrap(), "a").as_deref(), Some("durable"));
        assert_eq!(texts(&*store.snapshot().unwrap(), ""), ["a"]);
    });
}

#[test]
fn a_durable_commit_is_there_after_a_crash_and_so_is_everything_before_it() {
    on_every_store(|place| {
        let mut store = place.open();
        for (number, durability) in
            [Durability::Durable, Durability::DurableForQuickOpen].into_iter().enumerate()
        {
            put(&*store, &[("riding", ["1", "2"][number])], Durability::Riding);
            put(&*store, &[(["a", "b"][number], "")], durability);
            store = place.crash(store);
            assert_eq!(
                texts(&*store.snapshot().unwrap(), ""),
                [&["a", "riding"][..], &["a", "b", "riding"]][number]
            );
        }
        put(&*store, &[("riding", "3")], Durability::Riding);
        put(&*store, &[], Durability::Durable);
        store = place.crash(store);
        assert_eq!(
            get(&*store.snapshot().unwrap(), "riding").as_deref(),
            Some("3"),
            "an empty commit carries it"
        );
    });
}

#[test]
fn a_read_only_store_reads_and_refuses_to_write() {
    on_every_store(|place| {
        let store = place.open();
        put(&*store, &[("a", "1")], Durability::DurableForQuickOpen);
        drop(store);
        let store = place.open_read_only();
        assert_eq!(texts(&*store.snapshot().unwrap(), ""), ["a"]);
        let Err(StorageError::Io(error)) = store.begin() else { panic!("it writes") };
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(store.io_counts(), IoCounts::default(), "reading writes nothing");
    });
}

#[test]
fn syncs_are_counted_exactly_and_riding_costs_none() {
    on_every_store(|place| {
        let store = place.open();
        let cost = |work: &dyn Fn()| {
            let before = store.io_counts();
            work();
            let after = store.io_counts();
            (
                after.syncs - before.syncs,
                after.writes > before.writes,
                after.written_bytes > before.written_bytes,
            )
        };
        let commit = |durability| put(&*store, &[("a", "1"), ("b", "2")], durability);
        assert_eq!(cost(&|| commit(Durability::Durable)), (1, true, true));
        assert_eq!(cost(&|| commit(Durability::Riding)).0, 0);
        assert_eq!(cost(&|| commit(Durability::DurableForQuickOpen)), (2, true, true));
        let read = || {
            get(&*store.snapshot().unwrap(), "a");
            drop(store.begin().unwrap());
        };
        assert_eq!(
            cost(&read),
            (0, false, false),
            "neither reading nor a dropped transaction costs anything"
        );
    });
}

#[test]
fn the_disk_of_the_tests_counts_what_the_store_says_it_did() {
    let disk = FaultDisk::new();
    let store = RedbStore::open_medium(disk.medium()).unwrap();
    for number in 0..50u64 {
        let mut transaction = store.begin().unwrap();
        transaction.put(&number.to_be_bytes(), &[7; 3000]).unwrap();
        transaction.commit(Durability::Durable).unwrap();
    }
    let counts = store.io_counts();
    let set_lens = disk.history().set_lens();
    assert!(set_lens > 1, "the file grew");
    assert_eq!(usize::try_from(counts.syncs + counts.writes).unwrap() + set_lens, disk.changes());
}
