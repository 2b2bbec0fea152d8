//! Calls that were answered without Python, counted by method; and connections that were refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A latency histogram with one counter per bucket, as Prometheus has them.
pub struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<AtomicU64>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    /// `bounds`: upper bounds in seconds, in order; one more bucket takes the rest.
    pub fn new(bounds: &[f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds: bounds.to_vec(), counts, nanoseconds: AtomicU64::new(0) }
    }

    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The counts of all buckets, not cumulated, and the sum of seconds.
    pub fn read(&self) -> (Vec<u64>, f64) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        (counts, sum)
    }
}

/// Why connections or calls were refused.
#[derive(Default)]
pub struct Refusals {
    pub not_allowed: AtomicU64,
    pub flood: AtomicU64,
    pub too_many: AtomicU64,
    pub too_slow: AtomicU64,
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[0.001, 0.01]);
        for milliseconds in [0, 1, 2, 10, 11] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let (counts, sum) = histogram.read();
        assert_eq!(counts, [2, 2, 1]);
        assert!((sum - 0.024).abs() < 1e-9);
    }
}
