//! Clocks. Leases end while a machine is suspended, so they are measured by CLOCK_BOOTTIME.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started, those in which it was suspended included.
pub fn boot_nanoseconds() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// Nanoseconds since the epoch.
pub fn wall_nanoseconds() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
