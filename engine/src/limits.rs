//! This process's descriptor limit: every program of the engine may need many descriptors.

/// Raises the soft descriptor limit to the hard one; returns the soft limit before and now.
pub fn raise_descriptor_limit() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return (1024, 1024);
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above. A failure leaves the limit as it was.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    (before, if raised { limit.rlim_max } else { before })
}
