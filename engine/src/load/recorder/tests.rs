//! Shows on simulated runs that Little's law over a window is an identity once the parts cut by its edges are counted.

use proptest::prelude::*;

use super::*;

const GO_NS: u64 = 1_000_000;
const START_NS: u64 = GO_NS + 5_000;
const END_NS: u64 = START_NS + 20_000;

/// The begin of a lane's current cycle, its request if one is in flight, and the end of the cycle.
struct Lane {
    begin_ns: u64,
    flight: Option<Flight>,
    end_ns: u64,
}

/// Runs lanes that each alternate between a request and a pause of the given lengths (0: no pause) until the end.
fn run(lanes: &[Vec<(u64, u64)>]) -> Final {
    let edges = Arc::new(Edges::default());
    edges.set(START_NS, END_NS, END_NS + 1_000);
    let mut recorder = Recorder::new(edges, GO_NS, 3_000, 2, 1, Users::new(lanes.len(), 1));
    let send = |recorder: &mut Recorder, user: usize, intended_ns: u64| {
        let cohort = recorder.scheduled(intended_ns);
        let flight = Flight { intended_ns, sent_ns: intended_ns, step: if cohort { COHORT } else { 0 } };
        recorder.sent(user, &flight);
        Some(flight)
    };
    let mut next = vec![0usize; lanes.len()];
    let mut state: Vec<Lane> = Vec::new();
    for (user, times) in lanes.iter().enumerate() {
        recorder.users_changed(1, GO_NS);
        let flight = send(&mut recorder, user, GO_NS);
        state.push(Lane { begin_ns: GO_NS, flight, end_ns: GO_NS + times[0].0 });
    }
    while let Some(index) = (0..lanes.len()).min_by_key(|&lane| state[lane].end_ns) {
        let Lane { begin_ns, flight, end_ns } = state[index];
        if end_ns >= END_NS {
            break;
        }
        recorder.pass(end_ns);
        let times = lanes[index][next[index] % lanes[index].len()];
        let pause_ns = if flight.is_some() { times.1 } else { 0 };
        match flight {
            Some(flight) => recorder.done(index, &flight, Outcome::Ok, end_ns),
            None => recorder.pause_ends(begin_ns, end_ns),
        }
        if pause_ns > 0 {
            recorder.pause_begins(end_ns);
            state[index] = Lane { begin_ns: end_ns, flight: None, end_ns: end_ns + pause_ns };
        } else {
            next[index] += 1;
            let response_ns = lanes[index][next[index] % lanes[index].len()].0;
            let flight = send(&mut recorder, index, end_ns);
            state[index] = Lane { begin_ns: end_ns, flight, end_ns: end_ns + response_ns };
        }
    }
    recorder.pass(END_NS);
    recorder.finish(END_NS).1
}

fn two_sides(report: &Final) -> (u64, u64) {
    let Final { window, carried, .. } = report;
    (window.user_ns, window.time_in_system_ns_sum + window.think_ns_sum + carried.out_ns_sum - carried.in_ns_sum)
}

proptest! {
    #[test]
    fn users_times_time_is_cycles_and_what_the_edges_cut(
        lanes in prop::collection::vec(prop::collection::vec((1u64..40_000, 0u64..4_000), 1..5), 1..6)
    ) {
        let (present_ns, accounted_ns) = two_sides(&run(&lanes));
        prop_assert_eq!(present_ns, lanes.len() as u64 * (END_NS - START_NS));
        prop_assert_eq!(accounted_ns, present_ns);
    }
}

#[test]
fn a_request_that_is_never_answered_is_carried_through() {
    let report = run(&[vec![(100, 0)], vec![(90_000, 0)], vec![(5_000, 15_001)]]);
    assert_eq!(two_sides(&report).0, two_sides(&report).1);
    assert_eq!((report.carried.in_flight_in, report.carried.unanswered), (3, 1), "what ends at an edge ends after it");
    assert_eq!(report.unserved.users, 1);
    assert_eq!(report.carried.in_ns_sum, 100 + 5_000 + 5_000);
    assert_eq!(report.carried.out_ns_sum, 100 + 25_000 + 4_999);
}

#[test]
fn a_user_that_starts_late_was_present_from_when_it_was_due() {
    let edges = Arc::new(Edges::default());
    edges.set(GO_NS, END_NS, END_NS + 1_000);
    let mut recorder = Recorder::new(edges, GO_NS, 3_000, 2, 1, Users::new(2, 1));
    let starts = |recorder: &mut Recorder, user: usize, late_ns: u64| {
        recorder.pass(GO_NS + late_ns);
        recorder.users_changed(1, GO_NS);
        assert!(recorder.scheduled(GO_NS));
        recorder.sent(user, &Flight { intended_ns: GO_NS, sent_ns: GO_NS + late_ns, step: COHORT });
    };
    starts(&mut recorder, 0, 0);
    starts(&mut recorder, 1, 7_000);
    recorder.pass(END_NS);
    assert_eq!(two_sides(&recorder.finish(END_NS).1), (2 * (END_NS - GO_NS), 2 * (END_NS - GO_NS)));
}

#[test]
fn a_request_sent_late_hides_none_that_is_never_answered() {
    for (late_is_answered, unanswered) in [(true, 1), (false, 2)] {
        let edges = Arc::new(Edges::default());
        edges.set(START_NS, END_NS, END_NS + 1_000);
        let mut recorder = Recorder::new(edges, GO_NS, 3_000, 2, 1, Users::new(0, 1));
        let send = |recorder: &mut Recorder, intended_ns: u64, sent_ns: u64| {
            recorder.pass(sent_ns);
            assert!(!recorder.scheduled(intended_ns), "none of them is due within the window");
            let flight = Flight { intended_ns, sent_ns, step: 0 };
            recorder.sent(0, &flight);
            flight
        };
        send(&mut recorder, GO_NS, GO_NS);
        let answered = send(&mut recorder, GO_NS + 1, GO_NS + 1);
        let late = send(&mut recorder, START_NS - 10, START_NS + 10);
        recorder.done(0, &answered, Outcome::Ok, START_NS + 20);
        if late_is_answered {
            recorder.done(0, &late, Outcome::Ok, START_NS + 20);
        }
        recorder.pass(END_NS);
        let carried = recorder.finish(END_NS).1.carried;
        assert_eq!((carried.in_flight_in, carried.unanswered), (2, unanswered));
    }
}

#[test]
fn a_loop_that_does_not_run_is_late_for_the_windows_edges_and_intervals_but_for_none_before_and_after_it() {
    let edges = Arc::new(Edges::default());
    edges.set(START_NS, END_NS, END_NS + 90_000);
    let mut recorder = Recorder::new(edges, GO_NS, 3_000, 2, 1, Users::new(0, 1));
    for (now_ns, late_ns_max) in [
        (GO_NS + 4_900, 0),      // late for an interval of the warm-up
        (START_NS + 700, 700),   // asleep since the warm-up
        (START_NS + 3_100, 700), // late for the first interval by 100
        (START_NS + 8_000, 2_000),
        (END_NS + 2_500, 13_500), // asleep since the interval that ended 11 us before the window did
        (END_NS + 80_000, 13_500), // asleep in the drain
    ] {
        recorder.late_for_edge(now_ns);
        recorder.pass(now_ns);
        assert_eq!(recorder.late_ns_max, late_ns_max, "at {}", now_ns - GO_NS);
    }
}
