//! The load engine's WebSocket users against the reference server and scripted servers: who joins, which message
//! answers which, who loses the connection and joins again, and that everything is counted once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::load_support::{MS, Run, histogram, number, sum, text, tls_config};
use crate::serve_support::Server;
use crate::websocket_support::*;
use serde_json::{Value, json};

fn echo_server() -> Server {
    Server::start(&["--model", "event-loop", "--protocol", "websocket"])
}

#[test]
fn users_echo_with_the_reference_server() {
    let server = echo_server();
    let mut spec = spec(server.address, json!({"path": "/chat?wait=1ms"}));
    spec["model"] = json!({"kind": "closed", "users": 10, "requests_per_user": 6});
    spec["threads"] = json!(2);
    spec["scenario"] = json!([
        {"name": "text", "message": {"kind": "text", "text": "{id} of {user} at {stamp}"}, "checks": {"body_contains": [" of ", " at "]}},
        {"name": "binary", "message": {"kind": "binary", "base64": "AAECAwQF/w=="}},
        {"name": "large", "message": {"kind": "text", "text": "x".repeat(100_000)}},
    ]);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 60}));
    assert_eq!(summary["ended_by"], "work");
    let websocket = &summary["websocket"];
    assert_eq!([number(&websocket["joined"]), number(&websocket["messages_received"])], [10, 60]);
    assert_eq!((number(&websocket["published"]), &websocket["drops"]), (20, &json!({})));
    assert_eq!((&websocket["close_codes"], number(&summary["connections"]["opened"])), (&json!({}), 10));
    assert!(histogram(&websocket["join_time_ns"]).min() > 0);
    server.wait_for_metric("websocket_connections", 0.0);
    assert_eq!(server.metric("websocket_messages_total"), 60.0);
}

/// A wss server that echoes, and its certificate.
fn sealed_echo_server() -> std::net::SocketAddr {
    let (config, _) = tls_config();
    serve(move |peer| {
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut peer = Peer::new(rustls::StreamOwned::new(connection, peer.stream));
        if peer.accept().is_some() {
            peer.echo();
        }
    })
}

#[test]
fn users_may_speak_over_tls() {
    let address = sealed_echo_server();
    let mut spec = spec(address, json!({"greetings": []}));
    spec["target"] = json!({
        "url": format!("https://localhost:{}", address.port()), "addresses": [address], "tls": {"insecure": true}
    });
    spec["scenario"] = json!([text_step("{id}"), text_step(&"x".repeat(300_000))]);
    spec["connection"]["pipeline"] = json!(2);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert_eq!((number(&summary["websocket"]["joined"]), &summary["websocket"]["drops"]), (2, &json!({})));
    spec["target"]["tls"] = json!({});
    assert_eq!(run(&spec)["websocket"]["joins_failed"], json!({"tls_failed": 2}), "nobody vouches for it");
}

#[test]
fn an_answer_that_lacks_what_is_expected_fails_its_check_and_begins_the_scenario_anew() {
    let server = echo_server();
    let mut spec = spec(server.address, json!({}));
    spec["scenario"] = json!([
        {"name": "good", "message": {"kind": "text", "text": "good"}},
        {"name": "bad", "message": {"kind": "text", "text": "bad"}, "checks": {"body_contains": ["good"]}},
        {"name": "never", "message": {"kind": "text", "text": "never"}},
    ]);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 4, "check_failed": 2}));
    assert_eq!(summary["steps"][2]["outcomes"], json!({}));
}

#[test]
fn numbers_match_answers_that_come_out_of_order() {
    let address = serve_opened(|mut peer| {
        let asked: Vec<String> = (0..3).map_while(|_| peer.text()).collect();
        for number in asked.iter().rev() {
            peer.say(&format!("{{\"rid\":{number}}}"));
        }
        peer.say("{\"rid\":99}");
        peer.echo();
    });
    let mut spec = spec(address, json!({"matching": {"kind": "id", "after": "\"rid\":"}}));
    spec["scenario"] = json!([text_step("{id}")]);
    spec["connection"]["pipeline"] = json!(3);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert!(number(&summary["websocket"]["unmatched"]) <= 2);
}

#[test]
fn users_greet_and_know_what_answers_nothing() {
    let (sender, greetings) = channel();
    let sender = Mutex::new(sender);
    let address = serve_opened(move |mut peer| {
        let heard: Vec<String> = (0..2).map_while(|_| peer.text()).collect();
        sender.lock().unwrap().send(heard).unwrap();
        while let Some(text) = peer.text() {
            // Sent together: the second answers nothing, since its request had not been sent when it came.
            peer.send(&[frame(TEXT, b"news"), frame(TEXT, text.as_bytes()), frame(TEXT, b"once more")].concat());
        }
    });
    let websocket = json!({"greetings": ["hello {user}", "{id}"], "unsolicited": ["news"]});
    let summary = run(&spec(address, websocket));
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    let websocket = &summary["websocket"];
    let counts = ["messages_received", "unsolicited", "unmatched"].map(|field| number(&websocket[field]));
    assert_eq!(counts, [18, 6, 6], "those after the last answer count, too");
    let mut heard: Vec<_> = greetings.iter().take(2).collect();
    heard.sort();
    assert_eq!(heard, [["hello 0", "2"], ["hello 1", "2"]]);
}

#[test]
fn a_message_that_is_taken_for_an_answer_shows_in_the_answer_that_is_left_over() {
    let address = serve_opened(|mut peer| {
        let mut heard = peer.text();
        peer.say("welcome");
        while let Some(text) = heard {
            // Each answer comes once its user has sent the next message, or has said goodbye.
            pause(20);
            peer.say(&text);
            heard = peer.text();
        }
    });
    let summary = run(&spec(address, json!({})));
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    let counts = ["unmatched", "messages_received"].map(|field| number(&summary["websocket"][field]));
    assert_eq!(counts, [2, 8], "one of each user");
}

#[test]
fn one_way_messages_are_done_once_written() {
    let got = Arc::new(AtomicU64::new(0));
    let count = got.clone();
    let address = serve_opened(move |mut peer| {
        while let Some((first, payload)) = peer.frame() {
            match (first, payload.as_slice()) {
                (TEXT, b"ask") => _ = peer.say("answer"),
                (TEXT, _) => _ = count.fetch_add(1, Ordering::SeqCst),
                _ => return,
            }
        }
    });
    let mut spec = spec(address, json!({}));
    spec["model"]["requests_per_user"] = json!(300);
    let tell = json!({"name": "tell", "message": {"kind": "text", "text": "tell"}, "answered": false});
    spec["scenario"] = json!([tell, tell, text_step("ask")]);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 600}));
    assert_eq!(got.load(Ordering::SeqCst), 400);
    assert_eq!(number(&summary["websocket"]["messages_received"]), 200);
    spec["scenario"] = json!([tell]);
    assert_eq!(run(&spec)["total"]["outcomes"], json!({"ok": 600}));
}

#[test]
fn control_frames_and_fragments_may_stand_anywhere() {
    let address = serve_opened(|mut peer| {
        while let Some(message) = peer.text() {
            let (start, end) = message.split_at(2);
            let frames =
                [frame(0x01, start.as_bytes()), frame(PING, b"there?"), frame(0x80, end.as_bytes()), frame(PONG, b"")];
            for piece in frames.concat().chunks(3) {
                peer.send(piece);
                pause(1);
            }
            let Some(pong) = peer.frame() else { return };
            assert_eq!(pong, (PONG, b"there?".to_vec()));
        }
    });
    let mut spec = spec(address, json!({}));
    spec["scenario"][0]["checks"] = json!({"body_contains": ["hello"]});
    assert_eq!(run(&spec)["total"]["outcomes"], json!({"ok": 6}));
}

/// A server that answers two messages of each user, and then runs `end`.
fn two_answers_then(end: impl Fn(Peer) + Send + Sync + 'static) -> std::net::SocketAddr {
    serve_opened(move |mut peer| {
        for _ in 0..2 {
            let Some(message) = peer.text() else { return };
            peer.say(&message);
        }
        if peer.frame().is_some_and(|(first, _)| first == TEXT) {
            end(peer);
        }
    })
}

#[test]
fn lost_connections_are_told_apart() {
    let closing = |code: &'static [u8]| {
        move |mut peer: Peer| {
            peer.send(&frame(CLOSE, code));
            assert_eq!(peer.frame(), Some((CLOSE, code.to_vec())), "the engine answers in kind");
            peer.hold();
        }
    };
    type Script = Box<dyn Fn(Peer) + Send + Sync>;
    let cases: [(Script, &str, Value, Value); 5] = [
        (Box::new(closing(b"\x03\xe9")), "closed_early", json!({"closed": 2}), json!({"1001": 2})),
        (Box::new(closing(b"")), "closed_early", json!({"closed": 2}), json!({"none": 2})),
        (Box::new(drop), "closed_early", json!({"closed": 2}), json!({})),
        (Box::new(Peer::reset), "reset", json!({"reset": 2}), json!({})),
        (Box::new(|mut peer| peer.hold()), "timeout", json!({"timeout": 2}), json!({})),
    ];
    for (script, outcome, drops, codes) in cases {
        let mut spec = spec(two_answers_then(script), json!({}));
        spec["model"]["requests_per_user"] = json!(5);
        if outcome == "timeout" {
            spec["timeouts"]["request_ns"] = json!(1_000 * MS);
        }
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 4, outcome: 2}), "{drops}");
        let websocket = &summary["websocket"];
        assert_eq!((&websocket["drops"], &websocket["close_codes"]), (&drops, &codes), "{outcome}");
        assert_eq!((number(&websocket["joined"]), number(&websocket["rejoined"])), (2, 0));
    }
}

#[test]
fn who_breaks_the_protocol_loses_the_user_and_is_told_why() {
    for (bytes, code) in [
        (b"\xc1\x01a".to_vec(), 1002),
        (b"\x83\x00".to_vec(), 1002),
        (b"\x81\x81\0\0\0\0a".to_vec(), 1002),
        (b"\x89\x7e\0\x7e".to_vec(), 1002),
        (b"\x80\x01a".to_vec(), 1002),
        (b"\x01\x01a\x81\x01b".to_vec(), 1002),
        (b"\x81\x02\xc0\xaf".to_vec(), 1007),
        (b"\x82\x7f\0\0\0\0\0\x01\0\x01".to_vec(), 1009),
        (b"\x88\x01\x03".to_vec(), 1002),
        // Fragments of a message without an end.
        ([b"\x02\x00".to_vec(), frame(0x00, &[7; 1000]).repeat(66)].concat(), 1009),
    ] {
        let (sender, told) = channel();
        let sender = Mutex::new(sender);
        let start = bytes[..bytes.len().min(10)].to_vec();
        let address = two_answers_then(move |mut peer| {
            peer.send(&bytes);
            let _ = sender.lock().unwrap().send(peer.frame());
            peer.hold();
        });
        let mut spec = spec(address, json!({"message_bytes_max": 65_536}));
        spec["model"]["requests_per_user"] = json!(4);
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 4, "violation": 2}), "{start:02x?}");
        assert_eq!(summary["websocket"]["drops"], json!({"violation": 2}));
        let (first, payload) = told.recv().unwrap().expect("a close frame");
        assert_eq!((first, u16::from_be_bytes([payload[0], payload[1]])), (CLOSE, code), "{start:02x?}");
    }
}

#[test]
fn who_cannot_join_sends_nothing() {
    let refuse = |answer: &'static str| {
        serve(move |mut peer| {
            if peer.request().is_some() {
                peer.send(answer.as_bytes());
                assert!(peer.frame().is_none(), "nothing is said without a WebSocket");
            }
        })
    };
    let deflating = serve(|mut peer| {
        let Some(request) = peer.request() else { return };
        assert!(!request.to_ascii_lowercase().contains("sec-websocket-extensions"), "{request}");
        let answer = answer_to(&request);
        peer.send(
            answer.replace("Upgrade\r\n", "Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n").as_bytes(),
        );
        peer.hold();
    });
    let wrong_key = serve(|mut peer| {
        let Some(request) = peer.request() else { return };
        peer.send(answer_to(&request.replace("Key: ", "Key: x")).as_bytes());
        peer.hold();
    });
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    for (address, outcome, statuses) in [
        (refuse(busy), "handshake_refused", json!({"503": 2})),
        (refuse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "handshake_refused", json!({"200": 2})),
        (refuse("220 mail.example ESMTP\r\n"), "bad_response", json!({})),
        (deflating, "handshake_refused", json!({})),
        (wrong_key, "handshake_refused", json!({})),
        (serve(|mut peer| peer.hold()), "connect_timeout", json!({})),
        (serve(|mut peer| _ = peer.request()), "closed_early", json!({})),
        (
            serve(|mut peer| {
                if peer.request().is_some() {
                    peer.reset()
                }
            }),
            "reset",
            json!({}),
        ),
        ("127.0.0.1:1".parse().unwrap(), "connect_refused", json!({})),
    ] {
        let summary = run(&spec(address, json!({})));
        assert_eq!(summary["websocket"]["joins_failed"], json!({outcome: 2}));
        assert_eq!(number(&summary["total"]["scheduled"]), 0);
        assert_eq!(summary["rejected_statuses"], statuses);
        assert_eq!(summary["ended_by"], "work", "users that stay out have left");
    }
}

#[test]
fn the_opening_handshake_says_what_it_was_told_and_a_new_key_each_time() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let address = serve(move |mut peer| {
        let Some(request) = peer.request() else { return };
        let answer = answer_to(&request).replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n");
        seen.lock().unwrap().push(request);
        peer.send(answer.as_bytes());
        peer.echo();
    });
    let websocket = json!({"path": "/a?b=c", "headers": [["Origin", "http://x"], ["X-Y", "z"]], "subprotocols": ["chat.v2", "chat"]});
    assert_eq!(run(&spec(address, websocket))["total"]["outcomes"], json!({"ok": 6}));
    let requests = requests.lock().unwrap();
    for request in requests.iter() {
        assert!(request.starts_with(&format!("GET /a?b=c HTTP/1.1\r\nHost: {address}\r\n")), "{request}");
        for line in ["Origin: http://x", "X-Y: z", "Sec-WebSocket-Protocol: chat.v2, chat", "Sec-WebSocket-Version: 13"]
        {
            assert!(request.contains(&format!("\r\n{line}\r\n")), "{line} in {request}");
        }
    }
    let key = |request: &str| text(&json!(request.lines().find(|line| line.starts_with("Sec-WebSocket-Key")).unwrap()));
    assert_ne!(key(&requests[0]), key(&requests[1]));
}

#[test]
fn users_that_lost_their_connection_join_again() {
    let turn = Arc::new(AtomicU64::new(0));
    let address = serve(move |mut peer| {
        let turn = turn.fetch_add(1, Ordering::SeqCst);
        let Some(request) = peer.request() else { return };
        if turn.is_multiple_of(3) {
            peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        peer.send(answer_to(&request).as_bytes());
        for _ in 0..4 {
            let Some(message) = peer.text() else { return };
            peer.say(&message);
        }
    });
    let mut spec = spec(address, json!({"rejoin_after_ns": 10 * MS}));
    spec["model"]["requests_per_user"] = json!(40);
    spec["scenario"] = json!([text_step("first"), text_step("second")]);
    let summary = run(&spec);
    let websocket = &summary["websocket"];
    assert_eq!(summary["ended_by"], "work");
    assert!(number(&websocket["rejoined"]) > 6, "{websocket}");
    assert_eq!(number(&websocket["joined"]), number(&websocket["rejoined"]) + 2);
    assert!(number(&websocket["joins_failed"]["handshake_refused"]) > 3);
    assert_eq!(sum(&summary["total"]["outcomes"]), 80);
    let steps = [0, 1].map(|step| sum(&summary["steps"][step]["outcomes"]));
    assert!(steps[0] > steps[1], "each connection begins with the first step");
}

#[test]
fn users_join_over_the_ramp_and_pause_before_their_first_message() {
    let server = echo_server();
    let mut spec = timed(server.address, json!({}), 400);
    let think = json!({"kind": "constant", "ns": 60 * MS});
    spec["model"] = json!({"kind": "closed", "users": 40, "ramp_ns": 100 * MS, "think": think});
    let mut run = Run::start(&spec);
    let summary = run.summary();
    assert_joins_conserved(&summary, &run.events);
    assert_eq!(number(&summary["websocket"]["joined"]), 40);
    let intervals: Vec<&Value> = run.events.iter().filter(|event| event["type"] == "interval").collect();
    assert!(number(&intervals[0]["joined_now"]) < 20, "{}", intervals[0]);
    assert_eq!(number(&intervals[15]["joined_now"]), 40);
    let sent = number(&summary["total"]["sent"]);
    assert!((80..=40 * 8).contains(&sent), "{sent} messages of 40 users that pause for 60 ms");
    // Little's law: joining and pauses add up to the users' time, with what the edges cut.
    let window = &summary["window"];
    let get = |field: &str| number(&window[field]);
    let filled =
        get("time_in_system_ns_sum") + get("think_ns_sum") + get("carried_out_ns_sum") - get("carried_in_ns_sum");
    assert!(filled.abs_diff(get("user_ns")) < get("user_ns") / 50, "{filled} of {}", get("user_ns"));
}

#[test]
fn a_pace_waits_for_no_answer_until_too_many_are_missing() {
    let address = serve_opened(|mut peer| {
        // Six messages arrive although the first has no answer, and no seventh.
        let mut waiting: Vec<String> = (0..6).map_while(|_| peer.text()).collect();
        pause(100);
        peer.stream.set_nonblocking(true).unwrap();
        assert!(peer.text().is_none(), "the seventh has to wait");
        peer.stream.set_nonblocking(false).unwrap();
        waiting.drain(..).for_each(|message| _ = peer.say(&message));
        peer.echo();
    });
    let mut spec = timed(address, json!({}), 2_500);
    spec["model"] = json!({"kind": "closed", "users": 2, "pace": {"kind": "constant", "ns": 25 * MS}});
    spec["connection"]["pipeline"] = json!(6);
    spec["scenario"] = json!([text_step("a {id}"), text_step("b {id}")]);
    let summary = run(&spec);
    let sent = number(&summary["total"]["sent"]);
    assert!((150..=200).contains(&sent), "{sent} messages in 2.5 s, one in 25 ms of each of 2 users");
    assert_eq!(summary["total"]["outcomes"], json!({"ok": sent}));
    // The times of delayed messages count from the instants at which these were due. Some were delayed, which is caused
    // by the server and is no lag of the engine.
    assert!(histogram(&summary["cohort_times"]["response_time_ns"]).max() > 100 * MS);
    assert!(histogram(&summary["cohort_times"]["send_lag_ns"]).value_at_quantile(0.9) < 40 * MS);
    let steps = [0, 1].map(|step| sum(&summary["steps"][step]["outcomes"]));
    assert!(steps[0].abs_diff(steps[1]) <= 2, "{steps:?}");
}

#[test]
fn what_a_pace_could_not_send_is_dropped() {
    let mut spec = timed(serve_opened(|mut peer| peer.hold()), json!({}), 300);
    spec["model"] = json!({"kind": "closed", "users": 2, "pace": {"kind": "exponential", "mean_ns": 5 * MS}});
    spec["connection"]["pipeline"] = json!(2);
    spec["phases"]["drain_ns"] = json!(50 * MS);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"unfinished": 4}));
    let dropped = number(&summary["total"]["dropped"]);
    assert!((60..200).contains(&dropped), "{dropped}");
    // If the connection is lost, only the messages that were sent have outcomes.
    spec["timeouts"]["request_ns"] = json!(100 * MS);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"timeout": 2, "closed_early": 2}));
    assert!(number(&summary["total"]["dropped"]) > 10);
    assert_eq!(summary["websocket"]["drops"], json!({"timeout": 2}));
}

/// Accepts a WebSocket and closes it in one write.
fn accept_and_close(mut peer: Peer) {
    if let Some(request) = peer.request() {
        peer.send(&[answer_to(&request).as_bytes(), &frame(CLOSE, b"\x03\xe9")].concat());
        peer.hold();
    }
}

#[test]
fn a_connection_that_is_closed_as_it_is_accepted_makes_nothing_due() {
    let pace = json!({"kind": "constant", "ns": 100 * MS});
    for rejoin in [Value::Null, json!(50 * MS)] {
        let mut spec = timed(serve(accept_and_close), json!({"rejoin_after_ns": rejoin}), 400);
        spec["model"] = json!({"kind": "closed", "users": 2, "pace": pace});
        let summary = run(&spec);
        assert_eq!(number(&summary["total"]["scheduled"]), 0);
        let joined = &summary["websocket"]["joined"];
        assert_eq!(summary["websocket"]["drops"], json!({"closed": joined}));
        assert_eq!(number(joined) > 2, !rejoin.is_null(), "{joined} joined");
    }
    // Nor does it owe what would have been due if an earlier connection had lived on.
    let turn = AtomicU64::new(0);
    let address = serve(move |mut peer| {
        if turn.fetch_add(1, Ordering::SeqCst) >= 2 {
            return accept_and_close(peer);
        }
        peer.accept();
        for _ in 0..2 {
            let Some(message) = peer.text() else { return };
            peer.say(&message);
        }
    });
    let mut spec = timed(address, json!({"rejoin_after_ns": 300 * MS}), 1_500);
    spec["model"] = json!({"kind": "closed", "users": 2, "pace": pace});
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 4}));
    assert!(number(&summary["websocket"]["rejoined"]) >= 2, "{}", summary["websocket"]);
    assert!(number(&summary["total"]["dropped"]) <= 2, "{}: at most while the server took its time", summary["total"]);
}

#[test]
fn users_with_a_pace_leave_with_their_last_answer_and_not_when_another_message_would_be_due() {
    let server = echo_server();
    let mut spec = spec(server.address, json!({}));
    let pace = json!({"kind": "constant", "ns": 400 * MS});
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 3, "pace": pace});
    let summary = run(&spec);
    assert_eq!((&summary["total"]["outcomes"], &summary["ended_by"]), (&json!({"ok": 3}), &json!("work")));
    // The first message comes within 400 ms, and the last 800 ms after it.
    let took_ns = number(&summary["measure_end_ns"]) - number(&summary["go_ns"]);
    assert!((800 * MS..1_200 * MS).contains(&took_ns), "{took_ns}");
    // Nor do they join again only to leave.
    let address = serve_opened(|mut peer| _ = peer.text());
    spec["target"]["url"] = json!(format!("http://{address}"));
    spec["connection"]["websocket"]["rejoin_after_ns"] = json!(50 * MS);
    spec["model"]["requests_per_user"] = json!(1);
    let summary = run(&spec);
    assert_eq!((&summary["total"]["outcomes"], &summary["ended_by"]), (&json!({"closed_early": 1}), &json!("work")));
    assert_eq!(number(&summary["websocket"]["joined"]), 1);
}

#[test]
fn users_with_a_pace_that_lose_their_connection_leave_before_their_next_message_would_be_due() {
    let address = serve_opened(|mut peer| {
        // Close once the engine has had time to plan the next message.
        if let Some(message) = peer.text() {
            peer.say(&message);
            pause(50);
        }
    });
    let mut spec = spec(address, json!({}));
    let pace = json!({"kind": "constant", "ns": 1_500 * MS});
    spec["model"] = json!({"kind": "closed", "users": 2, "requests_per_user": 5, "pace": pace});
    let summary = run(&spec);
    assert_eq!((&summary["total"]["outcomes"], &summary["ended_by"]), (&json!({"ok": 2}), &json!("work")));
}

#[test]
fn users_with_a_pace_leave_when_they_have_said_all() {
    let server = echo_server();
    let mut spec = spec(server.address, json!({}));
    let pace = json!({"kind": "uniform", "min_ns": MS, "max_ns": 3 * MS});
    spec["model"] = json!({"kind": "closed", "users": 3, "requests_per_user": 20, "pace": pace});
    spec["scenario"] =
        json!([text_step("ask"), {"name": "tell", "message": {"kind": "text", "text": "tell"}, "answered": false}]);
    let summary = run(&spec);
    assert_eq!((&summary["total"]["outcomes"], &summary["ended_by"]), (&json!({"ok": 60}), &json!("work")));
    server.wait_for_metric("websocket_connections", 0.0);
}

/// A server that does everything that servers may do on their worst days.
fn unreliable_server() -> std::net::SocketAddr {
    let turn = AtomicU64::new(0);
    serve(move |mut peer| {
        let mut dice = turn.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut throw = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            dice >> 59
        };
        let Some(request) = peer.request() else { return };
        match throw() {
            0 => return,
            1 => return peer.reset(),
            2 => {
                peer.send(b"HTTP/1.1 500 No\r\n\r\n");
                return;
            }
            3 => return pause_with(peer, 200),
            _ => peer.send(answer_to(&request).as_bytes()),
        };
        while let Some(message) = peer.text() {
            match throw() {
                0 => {
                    peer.send(&frame(CLOSE, b"\x03\xe9"));
                    return;
                }
                1 => return peer.reset(),
                2 => return,
                3 => _ = peer.send(b"\xff"),
                4 => return pause_with(peer, 100),
                5 => _ = peer.send(&[frame(TEXT, message.as_bytes()), frame(TEXT, message.as_bytes())].concat()),
                6 => _ = peer.send(&[frame(PING, b"x"), frame(TEXT, message.as_bytes()), frame(CLOSE, b"")].concat()),
                _ => _ = peer.say(&message),
            }
        }
    })
}

#[test]
fn whatever_a_server_does_everything_is_counted_once() {
    let tell = json!({"name": "tell", "message": {"kind": "text", "text": "{id}"}, "answered": false});
    let pauses = json!({"kind": "exponential", "mean_ns": 2 * MS});
    for (pipeline, timing, rejoin) in [
        (1, "think", json!(5 * MS)),
        (4, "think", json!(5 * MS)),
        (4, "pace", json!(5 * MS)),
        (1, "pace", Value::Null),
        (3, "think", Value::Null),
        (2, "nothing", json!(MS)),
    ] {
        let mut spec = timed(unreliable_server(), json!({"rejoin_after_ns": rejoin}), 1_000);
        spec["model"] = json!({"kind": "closed", "users": 30, "ramp_ns": 20 * MS});
        if timing != "nothing" {
            spec["model"][timing] = pauses.clone();
        }
        spec["threads"] = json!(2);
        spec["connection"]["pipeline"] = json!(pipeline);
        spec["scenario"] = json!([text_step("one"), tell, text_step("two")]);
        spec["timeouts"] = json!({"connect_ns": 100 * MS, "request_ns": 50 * MS});
        spec["phases"]["warmup_ns"] = json!(100 * MS);
        spec["phases"]["drain_ns"] = json!(100 * MS);
        let summary = run(&spec);
        let websocket = &summary["websocket"];
        assert!(sum(&websocket["drops"]) > 10 && sum(&websocket["joins_failed"]) > 0, "{websocket}");
        assert!(number(&summary["total"]["outcomes"]["ok"]) > 10);
        if rejoin != Value::Null {
            assert!(number(&websocket["rejoined"]) > 30);
        }
        if timing != "pace" {
            let get = |field: &str| number(&summary["window"][field]);
            let filled = get("time_in_system_ns_sum") + get("think_ns_sum") + get("carried_out_ns_sum");
            let (filled, user_ns) = (filled - get("carried_in_ns_sum"), pipeline * get("user_ns"));
            assert!(
                filled.abs_diff(user_ns) < user_ns / 50 + 10 * MS,
                "{filled} of {user_ns} with {pipeline} and {timing}"
            );
        }
    }
}

#[test]
fn what_is_due_together_is_written_together() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = reads.clone();
    let address = serve_opened(move |mut peer| {
        peer.echo();
        count.fetch_add(peer.reads, Ordering::SeqCst);
    });
    let mut spec = timed(address, json!({}), 500);
    spec["model"] = json!({"kind": "closed", "users": 2, "pace": {"kind": "constant", "ns": MS / 2}});
    spec["connection"]["pipeline"] = json!(1000);
    spec["precision_ns"] = json!(20 * MS);
    let summary = run(&spec);
    let sent = number(&summary["total"]["sent"]);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": sent}));
    assert!(sent > 1000, "{sent}");
    let reads = reads.load(Ordering::SeqCst);
    assert!(reads * 5 < sent, "{reads} reads brought {sent} messages");
}

#[test]
fn deliveries_are_timed_from_the_stamp_that_they_hold() {
    // A server that sends every message to all users.
    let everyone = Arc::new(Mutex::new(Vec::<std::net::TcpStream>::new()));
    let address = serve_opened(move |mut peer| {
        everyone.lock().unwrap().push(peer.stream.try_clone().unwrap());
        while let Some((TEXT, payload)) = peer.frame() {
            pause(2);
            for stream in everyone.lock().unwrap().iter_mut() {
                let _ = std::io::Write::write_all(stream, &frame(TEXT, &payload));
            }
        }
        pause(300);
    });
    let mut spec = timed(address, json!({"stamp_after": "\"at\":"}), 300);
    spec["model"] = json!({"kind": "closed", "users": 5, "pace": {"kind": "constant", "ns": 60 * MS}});
    let publish = json!({"kind": "text", "text": "{\"at\":{stamp}}"});
    spec["scenario"] = json!([{"name": "publish", "message": publish, "answered": false}]);
    spec["phases"]["warmup_ns"] = json!(300 * MS);
    let summary = run(&spec);
    let websocket = &summary["websocket"];
    let get = |field: &str| number(&websocket[field]);
    assert_eq!(get("published"), number(&summary["total"]["sent"]));
    assert!(get("published_in_window") >= 10 && get("published_in_window") < get("published"));
    // All users have joined within a few ms, long before the window: each of them receives everything that is sent in
    // it.
    assert_eq!(get("delivered_in_window"), 5 * get("published_in_window"), "{websocket}");
    assert!(histogram(&websocket["delivery_time_ns"]).min() >= 2 * MS);
    assert_eq!((get("unmatched"), get("messages_received")), (0, get("delivered")));
}

#[test]
fn running_counts_are_kept_by_label() {
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let turn = AtomicU64::new(0);
    let shared = counts.clone();
    let address = serve_opened(move |mut peer| {
        let worker = turn.fetch_add(1, Ordering::SeqCst) as usize % 2;
        while peer.text().is_some() {
            let count = shared[worker].fetch_add(1, Ordering::SeqCst) + 1;
            peer.say(&format!("{{\"pid\":\"w{worker}\",\"count\":{count}}}"));
        }
    });
    let mut spec = spec(address, json!({"tally": {"label_after": "\"pid\":", "count_after": "\"count\":"}}));
    spec["model"] = json!({"kind": "closed", "users": 6, "requests_per_user": 20});
    spec["threads"] = json!(2);
    let summary = run(&spec);
    let [zero, one] = [0, 1].map(|worker: usize| counts[worker].load(Ordering::SeqCst));
    assert_eq!(summary["websocket"]["tallies"], json!({"w0": zero, "w1": one}));
    assert_eq!(zero + one, 120);
}

#[test]
fn a_server_that_stops_reading_is_given_up_and_costs_no_memory() {
    let address = serve_opened(|peer| pause_with(peer, 3_000));
    let mut spec = timed(address, json!({}), 600);
    let large = json!({"kind": "text", "text": "x".repeat(1 << 20)});
    spec["model"] = json!({"kind": "closed", "users": 2, "pace": {"kind": "constant", "ns": MS}});
    spec["scenario"] = json!([{"name": "large", "message": large, "answered": false}]);
    spec["timeouts"]["request_ns"] = json!(300 * MS);
    let summary = run(&spec);
    assert_eq!(summary["websocket"]["drops"], json!({"timeout": 2}));
    let outcomes = &summary["total"]["outcomes"];
    assert!(number(&outcomes["ok"]) >= 2 && outcomes["timeout"] == 2, "{outcomes}");
    assert!(number(&summary["total"]["dropped"]) > 100);
    assert!(number(&summary["max_rss_bytes"]) < 200 << 20);
}

fn pause_with(peer: Peer, ms: u64) {
    pause(ms);
    drop(peer);
}

#[test]
fn a_server_that_never_stops_talking_holds_up_nobody() {
    let address = serve_opened(|mut peer| {
        // Empty fragments of a message that never ends: they take no memory, however many come.
        let flood = [b"\x01\x00".to_vec(), b"\x00\x00".repeat(1 << 16)].concat();
        while peer.send(&flood[if peer.reads == 1 { 0 } else { 2 }..]) {
            peer.reads = 2;
        }
    });
    let mut spec = timed(address, json!({}), 400);
    spec["timeouts"]["request_ns"] = json!(150 * MS);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"timeout": 2}));
    assert_eq!(summary["ended_by"], "time");
}

#[test]
fn the_drain_waits_for_answers_and_closes_in_good_order() {
    let (sender, closes) = channel();
    let sender = Mutex::new(sender);
    let address = serve_opened(move |mut peer| {
        while let Some((first, payload)) = peer.frame() {
            pause(150);
            if first == CLOSE {
                sender.lock().unwrap().send(payload).unwrap();
                return;
            }
            peer.send(&frame(first, &payload));
        }
    });
    let summary = run(&timed(address, json!({}), 1_000));
    let sent = number(&summary["total"]["sent"]);
    assert!(sent >= 2, "{sent}");
    assert_eq!(summary["total"]["outcomes"], json!({"ok": sent}));
    assert_eq!(closes.recv().unwrap(), 1000u16.to_be_bytes());
    assert_eq!(closes.recv().unwrap(), 1000u16.to_be_bytes());
    assert!(summary["websocket"]["drops"] == json!({}) && summary["websocket"]["close_codes"] == json!({}));
}

#[test]
fn a_run_that_is_stopped_counts_what_was_under_way() {
    let address = serve(|mut peer| {
        static TURN: AtomicU64 = AtomicU64::new(0);
        // Two of three users join.
        if TURN.fetch_add(1, Ordering::SeqCst) < 2 {
            peer.accept();
        }
        peer.hold();
    });
    let mut spec = timed(address, json!({}), 100_000);
    spec["model"]["users"] = json!(3);
    spec["timeouts"] = json!({"connect_ns": 60_000 * MS, "request_ns": 60_000 * MS});
    let mut run = Run::start(&spec);
    while number(&run.until("interval")["in_flight_now"]) < 2 {}
    run.command(json!({"type": "stop"}));
    let summary = run.summary();
    assert_joins_conserved(&summary, &run.events);
    assert_eq!(summary["ended_by"], "stop");
    assert_eq!(summary["total"]["outcomes"], json!({"unfinished": 2}));
    assert_eq!(summary["websocket"]["joins_failed"], json!({"unfinished": 1}));
}

#[test]
fn bad_specs_are_refused_with_the_field_that_is_wrong() {
    let mut spec = spec("127.0.0.1:1".parse().unwrap(), json!({"dialect": "socketcluster20"}));
    let (kind, message) = Run::start(&spec).refusal();
    assert!(kind == "spec" && message.starts_with("scenario[0].message: is none of SocketCluster's"), "{message}");
    spec["connection"] = json!({});
    assert!(Run::start(&spec).refusal().1.starts_with("scenario[0].message: is sent over a WebSocket"));
}
