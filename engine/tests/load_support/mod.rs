//! Parts shared by the load engine's tests: a scripted server, a run of the engine under a controller, and its summary
//! as JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use hdrhistogram::Histogram;
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};

pub const MS: u64 = 1_000_000;
pub const ENGINE: &str = env!("CARGO_BIN_EXE_powerband-engine");

/// One accepted connection of a scripted server.
pub struct Peer {
    stream: BufReader<TcpStream>,
}

impl Peer {
    /// The next request, head and body; None if the engine has closed.
    pub fn request(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            if self.stream.read_line(&mut text).ok()? == 0 {
                return None;
            }
            if text.ends_with("\r\n\r\n") {
                break;
            }
        }
        let length =
            text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some(text + std::str::from_utf8(&body).unwrap())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends these bytes and the end of the stream in one packet.
    pub fn send_and_close(mut self, bytes: &[u8]) {
        use std::os::fd::AsRawFd;
        let (fd, on) = (self.stream.get_ref().as_raw_fd(), 1i32);
        // SAFETY: the option's value lives through the call and its size is given.
        unsafe {
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, (&raw const on).cast(), size_of::<i32>() as u32)
        };
        self.send(bytes);
    }

    /// Sends these bytes in separate pieces of this size.
    pub fn send_pieces(&mut self, bytes: &[u8], size: usize) {
        for piece in bytes.chunks(size) {
            self.send(piece);
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Closes with RST.
    pub fn reset(self) {
        reset(self.into_stream());
    }

    /// Waits until the engine closes.
    pub fn hold(mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
    }

    /// Waits for bytes, whatever they are.
    pub fn read_some(&mut self) -> std::io::Result<usize> {
        self.stream.fill_buf().map(<[u8]>::len)
    }

    pub fn peer_address(&self) -> std::net::IpAddr {
        self.stream.get_ref().peer_addr().unwrap().ip()
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }
}

/// Closes with RST.
pub fn reset(stream: TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option's value lives through the call and its size is given.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
}

/// Starts a server that runs `script` for each connection, each in its own thread. It lives as long as the test
/// process.
pub fn serve(script: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    serve_streams(move |stream| script(Peer { stream: BufReader::new(stream) }))
}

/// Like `serve`, but `script` gets the bare stream of each connection.
pub fn serve_streams(script: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = script.clone();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || script(stream));
        }
    });
    address
}

/// The configuration of a TLS server for `localhost`, and its certificate in PEM.
pub fn tls_config() -> (Arc<ServerConfig>, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), certified.cert.pem())
}

/// A server that answers every request with `response`.
pub fn always(response: &'static str) -> SocketAddr {
    serve(move |mut peer| {
        while peer.request().is_some() {
            peer.send(response.as_bytes())
        }
    })
}

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Two users with three requests each; the run starts at once and ends with their work.
pub fn spec(address: SocketAddr) -> Value {
    json!({
        "protocol": 1,
        "target": {"url": format!("http://{address}")},
        "scenario": [{"name": "request"}],
        "model": {"kind": "closed", "users": 2, "requests_per_user": 3},
        "timeouts": {"connect_ns": 5_000 * MS, "request_ns": 5_000 * MS},
        "phases": {"warmup_ns": 0, "drain_ns": 2_000 * MS, "deadline_ns": 20_000 * MS, "go_at_once": true}
    })
}

/// An open load with this rate, for this long.
pub fn open_spec(address: SocketAddr, rate_per_s: f64, measure_ms: u64, max_in_flight: u32) -> Value {
    let mut spec = spec(address);
    spec["model"] =
        json!({"kind": "open", "arrivals": "constant", "rate_per_s": rate_per_s, "max_in_flight": max_in_flight});
    spec["phases"]["measure_ns"] = json!(measure_ms * MS);
    spec
}

/// An engine under a controller.
pub struct Run {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
    pub events: Vec<Value>,
}

impl Run {
    pub fn start(spec: &Value) -> Run {
        Run::start_as(&mut Command::new(ENGINE), spec)
    }

    /// Starts the engine. `program`: the engine, or a shell that becomes it.
    pub fn start_as(program: &mut Command, spec: &Value) -> Run {
        let mut child = program.arg("load").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{spec}").unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Run { child, stdin: Some(stdin), stdout, events: Vec::new() }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn command(&mut self, command: Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Reads events up to and including one of this type.
    pub fn until(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no {kind} among {:?}", self.events);
            let event: Value = serde_json::from_str(&line).unwrap();
            self.events.push(event.clone());
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// The summary of a run that ended without an error; its counts are checked for conservation.
    pub fn summary(&mut self) -> Value {
        let summary = self.until("summary");
        assert!(self.child.wait().unwrap().success());
        assert_conserved(&summary, &self.events);
        summary
    }

    /// The kind and message of the error event with which a refused run ends.
    pub fn refusal(&mut self) -> (String, String) {
        self.error(2)
    }

    /// The kind and message of the error event of a run that ends with this exit code.
    pub fn error(&mut self, exit_code: i32) -> (String, String) {
        let error = self.until("error");
        assert_eq!(self.child.wait().unwrap().code(), Some(exit_code));
        (text(&error["kind"]), text(&error["message"]))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(spec: &Value) -> Value {
    Run::start(spec).summary()
}

/// The `total.outcomes` of a run.
pub fn outcomes(spec: &Value) -> Value {
    run(spec)["total"]["outcomes"].clone()
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub fn sum(outcomes: &Value) -> u64 {
    outcomes.as_object().unwrap().values().map(number).sum()
}

pub fn histogram(encoded: &Value) -> Histogram<u64> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded.as_str().unwrap()).unwrap();
    hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

/// Checks that scheduled = sent + dropped and sent = sum of outcomes, in the whole run and in the window; that
/// histograms have as many values as outcomes were counted; and that the intervals add up to the whole (apart from what
/// was given up in an interval of length 0).
pub fn assert_conserved(summary: &Value, events: &[Value]) {
    for counts in [&summary["total"], &summary["cohort"]] {
        assert_eq!(number(&counts["scheduled"]), number(&counts["sent"]) + number(&counts["dropped"]), "{counts}");
        assert_eq!(number(&counts["sent"]), sum(&counts["outcomes"]), "{counts}");
    }
    let (cohort, times) = (&summary["cohort"], &summary["cohort_times"]);
    let ok = cohort["outcomes"]["ok"].as_u64().unwrap_or(0);
    let count = |name: &str| histogram(&times[name]).len();
    assert_eq!([count("response_time_ns"), count("service_time_ns")], [ok, ok]);
    assert_eq!(count("failed_time_ns"), sum(&cohort["outcomes"]) - ok);
    assert_eq!(count("send_lag_ns"), number(&cohort["sent"]));
    assert_eq!(count("dropped_wait_ns"), number(&cohort["dropped"]));
    let steps: u64 = summary["steps"].as_array().unwrap().iter().map(|step| sum(&step["outcomes"])).sum();
    assert_eq!(steps, number(&cohort["sent"]));

    let intervals: Vec<&Value> = events.iter().filter(|event| event["type"] == "interval").collect();
    let all = |field: &str| -> u64 { intervals.iter().map(|interval| number(&interval[field])).sum() };
    assert_eq!(all("scheduled"), number(&summary["total"]["scheduled"]));
    assert_eq!(all("sent"), number(&summary["total"]["sent"]));
    let in_window = intervals.iter().filter(|interval| interval["phase"] == "measure");
    assert_eq!(in_window.map(|interval| sum(&interval["outcomes"])).sum::<u64>(), sum(&summary["window"]["outcomes"]));
    assert!(intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]));
}
