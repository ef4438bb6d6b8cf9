//! Finds users of the closed model who were left out: they had no `ok` answer in the whole window although one was due.
//! In: the requests of each user and their outcomes. Out: two counts. Arrivals of the open model are not observed.

use crate::contract::outcome::Outcome;
use crate::load::flight::{COHORT, Flight};
use crate::load::recorder::counts::sum;

/// One user, observed until its first `ok` answer within the window.
#[derive(Clone, Copy, Debug, Default)]
struct User {
    served: bool,
    /// Number of requests in flight that were intended before the window.
    before: u16,
    /// Number of requests that failed within the window, then how many of them were intended before it.
    failed: u32,
    failed_before: u32,
    /// Number of requests intended within the window.
    cohort: u32,
}

/// The stretches of the window for which a user had lost its connection.
#[derive(Clone, Copy, Debug, Default)]
struct Away {
    /// The start of the stretch under way.
    since_ns: Option<u64>,
    /// The sum of those that are over.
    ns: u64,
}

/// The number of users who were left out of the window, the number of their requests in the cohort, and the sum of the
/// times within the window for which they had lost their connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    pub users: u64,
    pub requests: u64,
    pub away_ns: u64,
}

pub struct Users {
    users: Vec<User>,
    /// Empty until a user loses its connection.
    away: Vec<Away>,
    pipeline: u32,
}

impl Users {
    /// `pipeline`: the number of requests that a user keeps in flight.
    pub fn new(users: usize, pipeline: u32) -> Users {
        Users { users: vec![User::default(); users], away: Vec::new(), pipeline }
    }

    #[inline]
    pub fn sent(&mut self, user: usize, flight: &Flight) {
        let Some(user) = self.users.get_mut(user).filter(|user| !user.served) else { return };
        if flight.step & COHORT != 0 {
            user.cohort += 1;
        } else {
            user.before = user.before.saturating_add(1);
        }
    }

    #[inline]
    pub fn done(&mut self, user: usize, flight: &Flight, outcome: Outcome, in_window: bool) {
        let Some(user) = self.users.get_mut(user).filter(|user| !user.served) else { return };
        let before = flight.step & COHORT == 0;
        user.before = user.before.saturating_sub(u16::from(before));
        if in_window {
            user.served = outcome == Outcome::Ok;
            user.failed += u32::from(!user.served);
            user.failed_before += u32::from(before && !user.served);
        }
    }

    /// A user has lost its connection over a WebSocket.
    pub fn lost(&mut self, user: usize, at_ns: u64) {
        self.away.resize(self.users.len(), Away::default());
        if let Some(away) = self.away.get_mut(user) {
            away.since_ns = Some(at_ns);
        }
    }

    /// A user has a connection again. `window_start_ns`: None outside the window.
    pub fn joined(&mut self, user: usize, at_ns: u64, window_start_ns: Option<u64>) {
        let Some(away) = self.away.get_mut(user) else { return };
        if let (Some(since_ns), Some(start_ns)) = (away.since_ns.take(), window_start_ns) {
            away.ns += at_ns.saturating_sub(since_ns.max(start_ns));
        }
    }

    /// Counts the users left out of the window, at its end. A user without an `ok` answer in the window is left out if
    /// a request was in flight all through it, or if one failed and the user tried more requests than it keeps in
    /// flight: a single failure, or one lost connection, may be chance.
    pub fn unserved(&self, start_ns: u64, end_ns: u64) -> Unserved {
        let mut unserved = Unserved::default();
        for (index, user) in self.users.iter().enumerate().filter(|(_, user)| !user.served) {
            let tried = user.cohort + user.failed_before;
            if user.before > 0 || (user.failed > 0 && tried > self.pipeline) {
                unserved.users += 1;
                unserved.requests += u64::from(user.cohort);
                let away = self.away.get(index).copied().unwrap_or_default();
                let now_ns = away.since_ns.map_or(0, |since_ns| end_ns.saturating_sub(since_ns.max(start_ns)));
                unserved.away_ns += away.ns + now_ns;
            }
        }
        unserved
    }
}

impl Unserved {
    pub fn add(&mut self, other: &Unserved) {
        sum!(self += other: users, requests, away_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Flight = Flight { intended_ns: 0, sent_ns: 0, step: 0 };
    const WITHIN: Flight = Flight { intended_ns: 9, sent_ns: 9, step: COHORT };

    fn unserved(users: &Users) -> (u64, u64) {
        let unserved = users.unserved(5, 100);
        (unserved.users, unserved.requests)
    }

    #[test]
    fn a_request_in_flight_all_through_the_window_leaves_its_user_out() {
        let mut users = Users::new(2, 1);
        users.sent(0, &BEFORE);
        users.sent(1, &BEFORE);
        users.done(1, &BEFORE, Outcome::Ok, true);
        assert_eq!(unserved(&users), (1, 0));
    }

    #[test]
    fn an_answer_before_the_window_is_none_in_it() {
        let mut users = Users::new(2, 1);
        for user in 0..2 {
            users.sent(user, &BEFORE);
            users.done(user, &BEFORE, Outcome::Ok, false);
        }
        assert_eq!(unserved(&users), (0, 0), "they pause: nothing is due");
        users.sent(0, &BEFORE);
        assert_eq!(unserved(&users), (1, 0));
    }

    #[test]
    fn errors_alone_serve_nobody() {
        let mut users = Users::new(3, 1);
        for user in 0..3 {
            for _ in 0..4 {
                users.sent(user, &WITHIN);
                users.done(user, &WITHIN, Outcome::ConnectRefused, true);
            }
        }
        users.sent(2, &WITHIN);
        users.done(2, &WITHIN, Outcome::Ok, true);
        users.sent(2, &WITHIN);
        assert_eq!(unserved(&users), (2, 8));
    }

    #[test]
    fn one_failure_may_be_chance_and_a_late_request_is_not_late_yet() {
        let mut users = Users::new(2, 1);
        users.sent(0, &WITHIN);
        users.done(0, &WITHIN, Outcome::StatusRejected, true);
        users.sent(1, &WITHIN);
        assert_eq!(unserved(&users), (0, 0));
        users.sent(0, &WITHIN);
        assert_eq!(unserved(&users), (1, 2), "the second attempt has no answer either");
    }

    #[test]
    fn with_several_in_flight_one_lost_connection_is_one_failure() {
        let mut users = Users::new(1, 3);
        for _ in 0..3 {
            users.sent(0, &WITHIN);
        }
        for _ in 0..3 {
            users.done(0, &WITHIN, Outcome::Reset, true);
        }
        assert_eq!(unserved(&users), (0, 0));
        users.sent(0, &WITHIN);
        assert_eq!(unserved(&users), (1, 4));
        users.done(0, &WITHIN, Outcome::Ok, true);
        assert_eq!(unserved(&users), (0, 0));
    }

    #[test]
    fn the_time_away_is_that_of_users_left_out_within_the_window() {
        let mut users = Users::new(3, 1);
        for user in 0..3 {
            users.lost(user, 1);
            users.joined(user, 3, None);
            users.lost(user, 4);
            users.joined(user, 15, Some(5));
            users.lost(user, 90);
            for _ in 0..2 {
                users.sent(user, &WITHIN);
                users.done(user, &WITHIN, Outcome::Timeout, true);
            }
        }
        users.sent(2, &WITHIN);
        users.done(2, &WITHIN, Outcome::Ok, true);
        users.joined(1, 92, Some(5));
        assert_eq!(users.unserved(5, 100), Unserved { users: 2, requests: 4, away_ns: (10 + 10) + (10 + 2) });
    }

    #[test]
    fn nobody_is_watched_in_the_open_model() {
        let mut users = Users::new(0, 1);
        users.sent(7, &BEFORE);
        users.lost(7, 1);
        users.joined(7, 2, Some(1));
        assert_eq!(unserved(&users), (0, 0));
    }
}
