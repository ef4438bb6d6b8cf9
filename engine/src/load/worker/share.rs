//! The share of a thread: users, arrivals and connections are dealt in turn.

/// A thread's share of the load.
#[derive(Clone, Copy)]
pub struct Share {
    pub thread: u32,
    pub threads: u32,
}

impl Share {
    /// This thread's part of `whole` things dealt in turn.
    pub fn of(self, whole: u32) -> u32 {
        whole / self.threads + u32::from(self.thread < whole % self.threads)
    }
}
