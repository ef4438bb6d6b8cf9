//! A thread's share of a load: users, arrivals and connections are dealt to the threads in turn.

#[derive(Clone, Copy)]
pub struct Share {
    pub thread: u32,
    pub threads: u32,
}

impl Share {
    /// The number of things that this thread gets if `whole` things are dealt in turn.
    pub fn of(self, whole: u32) -> u32 {
        whole / self.threads + u32::from(self.thread < whole % self.threads)
    }
}
