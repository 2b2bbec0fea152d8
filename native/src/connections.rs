//! The open connections of a listener. When there are too many, the least trusted goes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

struct Open {
    host: Arc<str>,
    is_proven: Arc<AtomicBool>,
    close: Arc<Notify>,
}

/// All of them, by number: the oldest first.
#[derive(Default)]
pub struct Connections {
    open: Mutex<(u64, BTreeMap<u64, Open>)>,
    emptied: Notify,
}

/// The place of one connection, which it leaves when this is dropped.
pub struct Ticket {
    number: u64,
    connections: Arc<Connections>,
    is_proven: Arc<AtomicBool>,
    pub close: Arc<Notify>,
}

impl Ticket {
    /// A call of a client that may call came from here.
    pub fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.1.remove(&self.number);
        if open.1.is_empty() {
            self.connections.emptied.notify_waiters();
        }
    }
}

/// What became of a new connection.
pub enum Admission {
    Admitted(Ticket),
    /// In the place of another one, which is being closed.
    Replaced(Ticket),
    Refused,
}

impl Connections {
    /// Admits a connection. In a full listener it takes the place of one that has proved nothing.
    pub fn admit(self: &Arc<Self>, host: &str, limit: usize) -> Admission {
        let mut open = self.lock();
        let is_full = open.1.len() >= limit;
        if is_full {
            let Some(victim) = least_trusted(&open.1) else { return Admission::Refused };
            if let Some(victim) = open.1.remove(&victim) {
                victim.close.notify_one();
            }
        }
        open.0 += 1;
        let number = open.0;
        let is_proven = Arc::new(AtomicBool::new(false));
        let close = Arc::new(Notify::new());
        let entry = Open { host: host.into(), is_proven: Arc::clone(&is_proven), close: Arc::clone(&close) };
        open.1.insert(number, entry);
        let ticket = Ticket { number, connections: Arc::clone(self), is_proven, close };
        if is_full { Admission::Replaced(ticket) } else { Admission::Admitted(ticket) }
    }

    pub fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Closes all of them at once.
    pub fn close_all(&self) {
        for open in self.lock().1.values() {
            open.close.notify_one();
        }
    }

    /// Until none is left.
    pub async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable(); // before the look, so that none is missed in between
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Open>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The oldest of the host that has the most connections without a call that was allowed.
fn least_trusted(open: &BTreeMap<u64, Open>) -> Option<u64> {
    let mut by_host: HashMap<&str, (usize, u64)> = HashMap::new();
    for (number, connection) in open {
        if !connection.is_proven.load(Ordering::Relaxed) {
            by_host.entry(&connection.host).or_insert((0, *number)).0 += 1;
        }
    }
    by_host.values().max_by_key(|(count, number)| (*count, u64::MAX - number)).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(admission: Admission) -> Ticket {
        match admission {
            Admission::Admitted(ticket) | Admission::Replaced(ticket) => ticket,
            Admission::Refused => panic!("refused"),
        }
    }

    #[test]
    fn a_full_listener_gives_up_the_oldest_of_the_host_with_the_most() {
        let connections = Arc::new(Connections::default());
        let proven = ticket(connections.admit("a", 4));
        proven.prove();
        let lonely = ticket(connections.admit("b", 4));
        let first = ticket(connections.admit("c", 4));
        let second = ticket(connections.admit("c", 4));
        assert!(matches!(connections.admit("d", 4), Admission::Replaced(_)));
        let numbers: Vec<u64> = connections.lock().1.keys().copied().collect();
        assert_eq!(numbers, [proven.number, lonely.number, second.number]); // d left at once
        drop(first);
        assert_eq!(connections.len(), 3);
    }

    #[test]
    fn proven_connections_stay() {
        let connections = Arc::new(Connections::default());
        let kept = [ticket(connections.admit("a", 2)), ticket(connections.admit("a", 2))];
        kept.iter().for_each(Ticket::prove);
        assert!(matches!(connections.admit("b", 2), Admission::Refused));
    }
}
