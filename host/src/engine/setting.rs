//! The limits that an operator may set: what each is called in a grant, and what it may be set to.

use std::fmt;
use std::ops::RangeInclusive;

use super::limits::{OUTPUT_JSON_BYTES, TABLE_ELEMENTS_MOST};
use crate::arguments::ARGUMENT_BYTES;

/// A limit of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of linear memory.
    Memory,
    /// Bytes of data of each process of its commands.
    CommandMemory,
    /// Milliseconds, host calls included.
    Time,
    /// Milliseconds it may go on after a cancel.
    CancelGrace,
    /// Elements of its tables.
    Table,
    /// Bytes of its arguments.
    Input,
    /// Bytes of its result.
    Output,
    /// Bytes it writes to standard output and error.
    Stdio,
    /// Log and progress lines that are passed on.
    LogLines,
    /// Files, streams and whatever else is open at once.
    Handles,
    /// Bytes that one call of the host may take from it.
    HostCall,
}

impl Limit {
    /// All of them, each at its own place.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::CommandMemory,
        Self::Time,
        Self::CancelGrace,
        Self::Table,
        Self::Input,
        Self::Output,
        Self::Stdio,
        Self::LogLines,
        Self::Handles,
        Self::HostCall,
    ];

    /// What it is called in a grant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory_bytes",
            Self::CommandMemory => "command_memory_bytes",
            Self::Time => "timeout_ms",
            Self::CancelGrace => "cancel_grace_ms",
            Self::Table => "table_elements",
            Self::Input => "input_bytes",
            Self::Output => "output_bytes",
            Self::Stdio => "stdio_bytes",
            Self::LogLines => "log_lines",
            Self::Handles => "handles",
            Self::HostCall => "host_call_bytes",
        }
    }

    /// What it may be set to. The least lets something run, the most is what the machinery can do, or what is surely a
    /// slip of the hand beyond it.
    pub const fn range(self) -> RangeInclusive<u64> {
        match self {
            // One page, and all that a 32-bit address reaches.
            Self::Memory => 64 << 10..=4 << 30,
            Self::CommandMemory => 1 << 20..=16 << 40,
            // A week.
            Self::Time => 1..=7 * 24 * 60 * 60 * 1000,
            Self::CancelGrace => 0..=10 * 60 * 1000,
            Self::Table => 1..=TABLE_ELEMENTS_MOST as u64,
            // Records of the journal hold no more.
            Self::Input => 2..=ARGUMENT_BYTES as u64,
            Self::Output => 1..=OUTPUT_JSON_BYTES as u64,
            Self::Stdio => 0..=1 << 40,
            Self::LogLines => 1..=1_000_000,
            // Those that every component has, and what a process may have.
            Self::Handles => 16..=65_536,
            // A result comes through it, too.
            Self::HostCall => 64 << 10..=1 << 30,
        }
    }

    /// The least that it may be set to.
    pub(crate) const fn least(self) -> u64 {
        *self.range().start()
    }

    /// The most that it may be set to.
    pub(crate) const fn most(self) -> u64 {
        *self.range().end()
    }
}

/// Its name, as messages show it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name())
    }
}

/// A setting that is too small or too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is {value}; it may be from {} to {}", range.start(), range.end())]
pub struct OutOfRange {
    name: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
}

impl OutOfRange {
    /// Whether `value` is in `range`; the setting `name` holds it.
    pub(crate) fn check(name: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), Self> {
        if range.contains(&value) { Ok(()) } else { Err(Self { name, value, range }) }
    }
}

/// What was set of each limit of a call; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings([Option<u64>; Limit::ALL.len()]);

impl Settings {
    /// What `value` says of each.
    pub(crate) fn of(value: impl Fn(Limit) -> Option<u64>) -> Self {
        Self(Limit::ALL.map(value))
    }

    /// Nothing.
    pub const fn none() -> Self {
        Self([None; Limit::ALL.len()])
    }

    /// What was set of one, if it was.
    pub const fn get(&self, limit: Limit) -> Option<u64> {
        self.0[limit as usize]
    }

    /// These, and what `others` say where these say nothing.
    #[must_use]
    pub(crate) fn or(&self, others: &Self) -> Self {
        Self::of(|limit| self.get(limit).or(others.get(limit)))
    }

    /// Of each the smaller one.
    #[must_use]
    pub(crate) fn meet(&self, others: &Self) -> Self {
        Self::of(|limit| self.get(limit).into_iter().chain(others.get(limit)).min())
    }

    /// The first that is not within its range, if one is not.
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        Limit::ALL.into_iter().try_for_each(|limit| match self.get(limit) {
            Some(value) => OutOfRange::check(limit.name(), value, limit.range()),
            None => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_place_and_its_default_is_within_its_range() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place, "{limit}");
            assert!(limit.least() < limit.most(), "{limit}");
        }
        let defaults = super::super::Limits::default();
        for (limit, default) in [
            (Limit::Memory, defaults.memory_bytes as u64),
            (Limit::Table, defaults.table_elements as u64),
            (Limit::Output, defaults.output_bytes as u64),
            (Limit::Stdio, defaults.stdio_bytes),
            (Limit::LogLines, u64::from(defaults.log_lines)),
            (Limit::Handles, defaults.handles as u64),
            (Limit::HostCall, defaults.host_call_bytes as u64),
        ] {
            assert!(limit.range().contains(&default), "{limit}");
        }
    }

    #[test]
    fn a_value_that_is_out_of_range_is_told_with_what_it_may_be() {
        let settings = |value| Settings::of(|limit| (limit == Limit::Memory).then_some(value));
        assert!(settings(64 << 10).check().is_ok() && settings(4 << 30).check().is_ok());
        let told = settings((4 << 30) + 1).check().unwrap_err().to_string();
        assert_eq!(told, "`memory_bytes` is 4294967297; it may be from 65536 to 4294967296");
        assert!(settings(0).check().is_err());
    }
}
