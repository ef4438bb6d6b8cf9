//! One step as HTTP/1: the bytes of its request, and what its response must be.

use crate::contract::spec::Step;
use crate::load::http1::contains::Needles;
use crate::load::http1::parse::Expected;
use crate::load::http1::render;

pub struct RequestPlan {
    pub request: Vec<u8>,
    pub expected: Expected,
    status: Vec<u16>,
}

impl RequestPlan {
    /// `authority`: as it stands in the URL.
    pub fn new(step: &Step, authority: &str, keep_alive: bool) -> RequestPlan {
        RequestPlan {
            request: render::request(step, authority, keep_alive),
            expected: Expected { head: step.method == "HEAD", needles: Needles::new(&step.checks.body_contains) },
            status: step.checks.status.clone(),
        }
    }

    #[inline]
    pub fn accepts(&self, status: u16) -> bool {
        if self.status.is_empty() { (200..400).contains(&status) } else { self.status.contains(&status) }
    }
}
