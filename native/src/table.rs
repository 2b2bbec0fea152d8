//! Ready replies: what the service answered to a read, kept until something that the answer depends on changes.
//!
//! Python decides every answer once, and says on which *subjects* it depends (a group, a node). A change publishes all
//! subjects that it touched in one step, before its caller is answered. A reply is valid while none of its subjects was
//! published since its computation began.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lru::LruCache;

use crate::clock;

/// Publications that are remembered. Beyond that everything is dropped once: what is asked for comes back by itself.
const MOST_SUBJECTS: usize = 100_000;
/// What an entry takes beside its key, its reply and its subjects: nodes of the map and of the list, and pointers.
const OVERHEAD: usize = 200;

/// What a reply is kept under: the method's number, then the canonical request.
pub type Key = Box<[u8]>;

struct Reply {
    message: Bytes,
    subjects: Vec<Box<str>>,
    began: u64,
}

impl Reply {
    fn size(&self, key: &Key) -> usize {
        let subjects: usize = self.subjects.iter().map(|subject| subject.len() + 16).sum();
        OVERHEAD + key.len() + self.message.len() + subjects
    }
}

struct Replies {
    by_key: LruCache<Key, Reply>,
    bytes: usize,
    revision: u64,
    /// The revision in which everything was dropped the last time.
    floor: u64,
    published: HashMap<Box<str>, u64>,
}

/// Counted since the start, and what is there now.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TableCounts {
    pub hits: u64,
    pub misses: u64,
    pub entries: usize,
    pub bytes: usize,
}

/// The replies of one listener. Safe to use from any thread; nothing here takes long.
pub struct Table {
    replies: Mutex<Replies>,
    limit: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    /// By CLOCK_BOOTTIME, in nanoseconds: after these moments nothing is answered from here. One is the provider's
    /// word (the end of a lease, say), the other follows from the last sign of life of Python's event loop.
    valid_until: AtomicU64,
    alive_until: AtomicU64,
    is_bypassed: AtomicBool,
}

impl Table {
    /// `limit`: bytes that all entries may take. The table is closed until both its moments are set.
    pub fn new(limit: usize) -> Self {
        let replies =
            Replies { by_key: LruCache::unbounded(), bytes: 0, revision: 0, floor: 0, published: HashMap::new() };
        Self {
            replies: Mutex::new(replies),
            limit,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            alive_until: AtomicU64::new(0),
            is_bypassed: AtomicBool::new(false),
        }
    }

    /// The reply that is ready, or the revision in which the computation of one begins.
    pub fn find(&self, key: &[u8]) -> Result<Bytes, u64> {
        let mut replies = self.lock();
        if self.is_open() {
            let Replies { by_key, published, .. } = &mut *replies;
            match by_key.get(key) {
                Some(reply) if is_current(reply, published) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(reply.message.clone());
                }
                Some(_) => replies.remove(key),
                None => {}
            }
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        Err(replies.revision)
    }

    /// Keeps a reply, unless one of its subjects was published since `began`.
    pub fn keep(&self, key: Key, message: Bytes, subjects: Vec<Box<str>>, began: u64) {
        let mut replies = self.lock();
        let reply = Reply { message, subjects, began };
        let size = reply.size(&key);
        if began < replies.floor || !is_current(&reply, &replies.published) || size > self.limit / 4 {
            return;
        }
        replies.remove(&key);
        replies.bytes += size;
        replies.by_key.put(key, reply);
        while replies.bytes > self.limit {
            let Some((key, reply)) = replies.by_key.pop_lru() else { break };
            replies.bytes -= reply.size(&key);
        }
    }

    /// Invalidates every reply that depends on one of these subjects, in one step.
    pub fn publish(&self, subjects: impl IntoIterator<Item = Box<str>>) {
        let mut replies = self.lock();
        replies.revision += 1;
        let revision = replies.revision;
        for subject in subjects {
            replies.published.insert(subject, revision);
        }
        if replies.published.len() > MOST_SUBJECTS {
            replies.clear();
        }
    }

    /// Invalidates everything.
    pub fn clear(&self) {
        let mut replies = self.lock();
        replies.revision += 1;
        replies.clear();
    }

    /// Until when the provider stands by its answers; 0 closes the table.
    pub fn valid_until(&self, nanoseconds: u64) {
        self.valid_until.store(nanoseconds, Ordering::SeqCst);
    }

    /// Until when Python's event loop counts as being at work.
    pub fn alive_until(&self, nanoseconds: u64) {
        self.alive_until.store(nanoseconds, Ordering::SeqCst);
    }

    /// While it is bypassed, Python answers every call.
    pub fn bypass(&self, is_bypassed: bool) {
        self.is_bypassed.store(is_bypassed, Ordering::SeqCst);
    }

    pub fn is_open(&self) -> bool {
        let until = self.valid_until.load(Ordering::SeqCst).min(self.alive_until.load(Ordering::SeqCst));
        !self.is_bypassed.load(Ordering::SeqCst) && clock::boot_nanoseconds() < until
    }

    pub fn counts(&self) -> TableCounts {
        let replies = self.lock();
        TableCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            entries: replies.by_key.len(),
            bytes: replies.bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Replies> {
        // A panic while it was held leaves at worst a wrong sum of bytes behind.
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replies {
    fn remove(&mut self, key: &[u8]) {
        if let Some((key, reply)) = self.by_key.pop_entry(key) {
            self.bytes -= reply.size(&key);
        }
    }

    fn clear(&mut self) {
        self.by_key.clear();
        self.published = HashMap::new();
        self.bytes = 0;
        self.floor = self.revision;
    }
}

fn is_current(reply: &Reply, published: &HashMap<Box<str>, u64>) -> bool {
    let published = reply.subjects.iter().filter_map(|subject| published.get(subject));
    published.into_iter().all(|revision| *revision <= reply.began)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: u64 = u64::MAX;

    fn open(limit: usize) -> Table {
        let table = Table::new(limit);
        table.valid_until(FAR);
        table.alive_until(FAR);
        table
    }

    fn boxed(text: &str) -> Box<str> {
        text.into()
    }

    fn keep(table: &Table, key: &str, subject: &str) {
        let began = table.find(key.as_bytes()).expect_err("not there yet");
        table.keep(key.as_bytes().into(), Bytes::from(key.to_owned()), vec![boxed(subject)], began);
    }

    fn has(table: &Table, key: &str) -> bool {
        table.find(key.as_bytes()).is_ok()
    }

    #[test]
    fn a_reply_is_gone_once_its_subject_is_published() {
        let table = open(10_000);
        keep(&table, "a", "group/a");
        keep(&table, "b", "group/b");
        assert!(has(&table, "a") && has(&table, "b"));
        table.publish([boxed("group/a")]);
        assert!(!has(&table, "a") && has(&table, "b"));
        keep(&table, "a", "group/a");
        assert!(has(&table, "a"));
    }

    #[test]
    fn a_reply_that_was_computed_during_a_change_is_not_kept() {
        let table = open(10_000);
        let began = table.find(b"a").expect_err("nothing is there");
        table.publish([boxed("group/a")]);
        table.keep((*b"a").into(), Bytes::from_static(b"old"), vec![boxed("group/a")], began);
        assert!(!has(&table, "a"));
        table.clear();
        table.keep((*b"b").into(), Bytes::from_static(b"old"), vec![boxed("group/b")], began);
        assert!(!has(&table, "b"));
    }

    #[test]
    fn a_closed_table_answers_nothing() {
        let table = open(10_000);
        keep(&table, "a", "group/a");
        for close in [Table::valid_until, Table::alive_until] {
            close(&table, clock::boot_nanoseconds());
            assert!(!has(&table, "a"));
            close(&table, FAR);
            assert!(has(&table, "a"));
        }
        table.bypass(true);
        assert!(!has(&table, "a"));
    }

    #[test]
    fn what_is_asked_rarely_goes_first() {
        let table = open(4000);
        keep(&table, "first", "s");
        for number in 0..100 {
            keep(&table, &format!("{number}"), "s");
            assert!(has(&table, "first"));
            assert!(table.counts().bytes <= 4000);
        }
        assert!(has(&table, "99") && !has(&table, "0"));
        table.clear();
        assert_eq!((table.counts().entries, table.counts().bytes), (0, 0));
    }

    #[test]
    fn subjects_are_bounded() {
        let table = open(10_000);
        keep(&table, "a", "group/a");
        for number in 0..=MOST_SUBJECTS {
            table.publish([format!("node/{number}").into()]);
        }
        assert!(table.lock().published.len() <= MOST_SUBJECTS);
        assert!(!has(&table, "a"));
    }
}
