//! A request on its way. Connections and sessions keep it while it has no answer.

/// One request on its way; `step` carries whether it belongs to the cohort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    pub intended_ns: u64,
    pub sent_ns: u64,
    pub step: u16,
}

/// Marks a `Flight`'s step as part of the cohort; decided once, when it is scheduled, so that every count agrees.
pub const COHORT: u16 = 1 << 15;

impl Flight {
    #[inline]
    pub fn step_index(self) -> u16 {
        self.step & !COHORT
    }
}
