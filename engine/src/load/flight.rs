//! A request in flight. Connections and sessions keep it until it is answered.

/// One request in flight; `step` also holds the flags `COHORT` and `FIRST`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    pub intended_ns: u64,
    pub sent_ns: u64,
    pub step: u16,
}

/// Marks the step of a `Flight` as part of the cohort. This is decided once, when the request is scheduled, so that all
/// counts agree.
pub const COHORT: u16 = 1 << 15;

/// Marks the step of a `Flight` as the first of a user.
pub const FIRST: u16 = 1 << 14;

impl Flight {
    #[inline]
    pub fn step_index(self) -> u16 {
        self.step & !(COHORT | FIRST)
    }
}
