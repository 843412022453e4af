//! The writes of one commit, collected over a transaction that other commits may share: either all of them are put into
//! it, or none.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::commit::CommitError;
use crate::id::Digest;
use crate::record::{self, Encoded, Key};
use crate::storage::{Snapshot, StorageError, Transaction};

/// What a commit would make of the store.
pub(crate) struct Staged<'a> {
    below: &'a dyn Snapshot,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Snapshot for Staged<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        let mut pairs = BTreeMap::new();
        self.below.scan(prefix, &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
            true
        })?;
        for (key, value) in self.writes.range(prefix.to_vec()..) {
            if !key.starts_with(prefix) {
                break;
            }
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        pairs.iter().all(|(key, value)| each(key, value));
        Ok(())
    }
}

impl<'a> Staged<'a> {
    pub(crate) fn new(below: &'a dyn Snapshot) -> Self {
        Self { below, writes: BTreeMap::new() }
    }

    /// Set a record. `what` names it when it is too large.
    pub(crate) fn put<T: Serialize>(&mut self, key: &Key, record: &T, what: &str) -> Result<(), CommitError> {
        let Encoded { bytes, blob } = record::encode(key, record);
        if let Some((digest, content)) = blob {
            let limit = key.limit_bytes();
            if content.len() > limit {
                return Err(CommitError::TooLarge { what: what.to_owned(), bytes: content.len(), limit });
            }
            let references = self.references(&digest)?;
            if references == 0 {
                let key = Key::blob(&digest);
                let stored = record::envelope(&key, &content);
                self.writes.insert(key.as_bytes().to_vec(), Some(stored));
            }
            self.set_references(&digest, references + 1);
        }
        self.release_blob(key.as_bytes())?;
        self.writes.insert(key.as_bytes().to_vec(), Some(bytes));
        Ok(())
    }

    /// Remove a record, and its blob with the last reference to it.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), CommitError> {
        self.release_blob(key)?;
        self.writes.insert(key.to_vec(), None);
        Ok(())
    }

    /// Remove every record whose key begins with `prefix`.
    pub(crate) fn delete_all(&mut self, prefix: &Key) -> Result<(), CommitError> {
        for (key, _) in record::pairs(self, prefix)? {
            self.delete(&key)?;
        }
        Ok(())
    }

    /// The record at `key` no longer names its blob, if it named one.
    fn release_blob(&mut self, key: &[u8]) -> Result<(), CommitError> {
        let Some(digest) = self.get(key)?.and_then(|bytes| record::blob_of(key, &bytes)) else {
            return Ok(());
        };
        self.drop_reference(&digest)
    }

    fn drop_reference(&mut self, digest: &Digest) -> Result<(), CommitError> {
        let references = self.references(digest)?.saturating_sub(1);
        if references == 0 {
            self.writes.insert(Key::blob(digest).as_bytes().to_vec(), None);
        }
        self.set_references(digest, references);
        Ok(())
    }

    /// How many records name a blob: none when it is not there. A blob without its count is left alone.
    fn references(&self, digest: &Digest) -> Result<u64, CommitError> {
        let key = Key::blob_references(digest);
        match record::read(self, &key)? {
            Some(references) => Ok(references),
            None if self.get(Key::blob(digest).as_bytes())?.is_none() => Ok(0),
            None => Err(record::damaged(key.as_bytes(), "it is missing").into()),
        }
    }

    fn set_references(&mut self, digest: &Digest, references: u64) {
        let key = Key::blob_references(digest);
        let stored = (references > 0).then(|| record::encode(&key, &references).bytes);
        self.writes.insert(key.as_bytes().to_vec(), stored);
    }

    /// The collected writes.
    pub(crate) fn finish(self) -> Writes {
        Writes(self.writes)
    }
}

/// Checked writes, ready for the transaction.
pub(crate) struct Writes(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Writes {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put_into(&self, transaction: &mut dyn Transaction) -> Result<(), StorageError> {
        for (key, value) in &self.0 {
            match value {
                Some(value) => transaction.put(key, value)?,
                None => transaction.delete(key)?,
            }
        }
        Ok(())
    }
}
