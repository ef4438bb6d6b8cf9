//! A checked spec made ready to run: requests as bytes, addresses resolved, TLS configured, users dealt to threads.
//! Everything that may fail on this machine fails here, before the engine says that it is armed.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::contract::spec::{Duration, LoadSpec, Model, Target};
use crate::load::arrivals::exponential;
use crate::load::check::check;
use crate::load::http1::plan::RequestPlan;
use crate::load::messages::plan::MessagesPlan;
use crate::load::problem::Problem;
use crate::load::sys;
use crate::load::tls::TlsPlan;

pub struct Plan {
    pub spec: LoadSpec,
    /// The pause after each step.
    pub pauses: Vec<Duration>,
    pub addresses: Vec<SocketAddr>,
    pub tls: Option<TlsPlan>,
    pub protocol: ProtocolPlan,
}

/// The protocol that all users speak, and their requests or messages.
pub enum ProtocolPlan {
    Http1(Arc<[RequestPlan]>),
    Messages(Arc<MessagesPlan>),
}

impl Plan {
    /// True if sends are scheduled ahead: arrivals, sends at a pace, or pauses of users.
    pub fn schedules(&self) -> bool {
        matches!(self.spec.model, Model::Open { .. } | Model::Closed { pace: Some(_), .. })
            || self.pauses.iter().any(|pause| *pause != Duration::default())
    }

    /// True if the send after an answer may be due less than `within_ns` later. Of random pauses, the shortest
    /// hundredth does not count.
    pub fn follows_within(&self, within_ns: u64) -> bool {
        let followed = match self.spec.model {
            Model::Closed { pace: Some(_), .. } => 0,
            Model::Closed { .. } => self.pauses.len(),
            Model::Open { .. } => self.pauses.len() - 1,
        };
        self.pauses[..followed].iter().any(|pause| usually_above(pause) < within_ns)
    }

    /// True if users hold WebSockets, which are counted besides requests.
    pub fn has_websockets(&self) -> bool {
        self.spec.connection.websocket.is_some()
    }
}

/// Makes a plan. `descriptor_limit`: the number of descriptors that this process may open.
///
/// # Errors
/// Kinds `spec`, `resolve` and `limit`.
pub fn make(spec: LoadSpec, descriptor_limit: u64) -> Result<Plan, Problem> {
    check(&spec)?;
    let url = Url::parse(&spec.target.url)?;
    let addresses = addresses(&spec, &url)?;
    check_sources(&spec, &addresses)?;
    check_descriptors(&spec, descriptor_limit)?;
    let tls = url.tls.then(|| TlsPlan::new(&spec.target.tls, &url.host)).transpose()?;
    let (Model::Closed { think, .. } | Model::Open { think, .. }) = spec.model;
    let pauses = spec.scenario.iter().map(|step| step.think.unwrap_or(think)).collect();
    let request = |step| RequestPlan::new(step, &url.authority, spec.connection.keep_alive);
    let protocol = match MessagesPlan::new(&spec, &url.authority) {
        Some(messages) => ProtocolPlan::Messages(Arc::new(messages)),
        None => ProtocolPlan::Http1(spec.scenario.iter().map(request).collect()),
    };
    Ok(Plan { pauses, addresses, tls, protocol, spec })
}

/// Draws the length of a pause in ns.
pub fn draw(duration: &Duration, rng: &mut SmallRng) -> u64 {
    match *duration {
        Duration::Constant { ns } => ns,
        Duration::Uniform { min_ns, max_ns } => rng.random_range(min_ns..=max_ns),
        Duration::Exponential { mean_ns } => (exponential(rng) * mean_ns as f64) as u64,
    }
}

/// The length that 99 of 100 pauses have or exceed, in ns.
fn usually_above(duration: &Duration) -> u64 {
    match *duration {
        Duration::Constant { ns } => ns,
        Duration::Uniform { min_ns, max_ns } => min_ns + (max_ns - min_ns) / 100,
        Duration::Exponential { mean_ns } => mean_ns / 100,
    }
}

/// Draws a user's first pause. It is cut to a random part, unless it is exponential and so has no memory: users who
/// begin together would stay in step.
pub fn draw_first(duration: &Duration, rng: &mut SmallRng) -> u64 {
    match draw(duration, rng) {
        ns if ns > 0 && !matches!(duration, Duration::Exponential { .. }) => rng.random_range(0..ns),
        ns => ns,
    }
}

/// The parts of `scheme://host[:port]`.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    tls: bool,
    /// An IPv6 address is without its brackets.
    host: String,
    port: u16,
    /// Host and port as written in the URL, for the Host header.
    authority: String,
}

impl Url {
    fn parse(text: &str) -> Result<Url, Problem> {
        let wrong = |why: &str| Problem::spec("target.url", format!("{text:?} {why}"));
        let (tls, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else if text.starts_with("ws://") || text.starts_with("wss://") {
            return Err(wrong(
                "must start with http:// or https://; that users hold WebSockets is said by connection.websocket",
            ));
        } else {
            return Err(wrong("must start with http:// or https://"));
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(wrong("has a path; paths belong to steps (scenario[].path)"));
        }
        if authority.contains('@') {
            return Err(wrong("has a user; give an Authorization header to the steps instead"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let port = match port {
            None if tls => 443,
            None => 80,
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or_else(|| wrong("has no valid port"))?,
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong("has no valid host"));
        }
        Ok(Url { tls, host: host.into(), port, authority: authority.into() })
    }
}

fn addresses(spec: &LoadSpec, url: &Url) -> Result<Vec<SocketAddr>, Problem> {
    let addresses = if spec.target.addresses.is_empty() {
        vec![resolve(url, &spec.target)?]
    } else {
        spec.target.addresses.clone()
    };
    let remote = addresses.iter().find(|address| !is_loopback(address.ip()));
    match remote {
        Some(address) if !spec.target.allow_remote => Err(Problem::spec(
            "target",
            format!(
                "{address} is not this machine; to load another one, which you must be entitled to do, set target.allow_remote"
            ),
        )),
        _ => Ok(addresses),
    }
}

/// Picks one address of the host, of the IP version of the source addresses if there are any.
fn resolve(url: &Url, target: &Target) -> Result<SocketAddr, Problem> {
    let failed = |why: String| Problem::new("resolve", format!("target.url: cannot resolve {:?}: {why}", url.host));
    let found: Vec<SocketAddr> =
        (url.host.as_str(), url.port).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    let found = reachable(found, &target.source_addresses);
    pick(&found, target.allow_remote).ok_or_else(|| failed("it has no address".into()))
}

/// The first address that accepts a connection, since a server may listen at one alone (localhost: ::1 and 127.0.0.1);
/// the first of all if none does, or if one may not be asked because it is not this machine's.
fn pick(found: &[SocketAddr], allow_remote: bool) -> Option<SocketAddr> {
    let may_ask = allow_remote || found.iter().all(|address| is_loopback(address.ip()));
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, StdDuration::from_secs(1)).is_ok();
    let answering = if may_ask && found.len() > 1 { found.iter().find(answers) } else { None };
    answering.or(found.first()).copied()
}

/// The addresses that all sources can reach. If there are none, returns all addresses: `check_sources` then names the
/// problem.
fn reachable(found: Vec<SocketAddr>, sources: &[IpAddr]) -> Vec<SocketAddr> {
    let same = |address: &SocketAddr| sources.iter().all(|source| source.is_ipv4() == address.is_ipv4());
    if found.iter().any(same) { found.into_iter().filter(same).collect() } else { found }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn check_sources(spec: &LoadSpec, addresses: &[SocketAddr]) -> Result<(), Problem> {
    for (i, source) in spec.target.source_addresses.iter().enumerate() {
        let path = format!("target.source_addresses[{i}]");
        if addresses.iter().any(|address| address.is_ipv4() != source.is_ipv4()) {
            return Err(Problem::spec(&path, format!("{source} cannot reach an address of the other IP version")));
        }
        if source.is_unspecified() || std::net::UdpSocket::bind((*source, 0)).is_err() {
            return Err(Problem::spec(&path, format!("{source} is no address of this machine")));
        }
    }
    Ok(())
}

/// Checks that the closed model can open one connection for each user. The open model opens connections as needed: if
/// it ever meets the limit, the outcome is `no_descriptors`.
fn check_descriptors(spec: &LoadSpec, limit: u64) -> Result<(), Problem> {
    let Model::Closed { users, .. } = spec.model else { return Ok(()) };
    let own = sys::descriptors_open() + 2 * u64::from(spec.threads) + 8;
    if u64::from(users) + own > limit {
        return Err(Problem::new(
            "limit",
            format!(
                "model.users: {users} users need {} descriptors and this process may open {limit}; raise the hard limit \
                 (ulimit -Hn) or deal the users to several engine processes of at most {} each",
                u64::from(users) + own,
                limit.saturating_sub(own)
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn url(text: &str) -> Result<Url, String> {
        Url::parse(text).map_err(|problem| problem.message)
    }

    fn parts(tls: bool, host: &str, port: u16, authority: &str) -> Url {
        Url { tls, host: host.into(), port, authority: authority.into() }
    }

    fn spec(target: &str, users: u32) -> LoadSpec {
        let json = format!(
            r#"{{"protocol": 1, "target": {target}, "scenario": [{{"name": "a"}}],
                "model": {{"kind": "closed", "users": {users}}}, "phases": {{"drain_ns": 0, "deadline_ns": 1}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn problem(target: &str, users: u32) -> Problem {
        make(spec(target, users), 256).err().expect("a problem")
    }

    #[test]
    fn urls_come_apart() {
        assert_eq!(url("http://localhost:81"), Ok(parts(false, "localhost", 81, "localhost:81")));
        assert_eq!(url("https://a.example/"), Ok(parts(true, "a.example", 443, "a.example")));
        assert_eq!(url("http://[::1]:8080"), Ok(parts(false, "::1", 8080, "[::1]:8080")));
        assert_eq!(url("http://[::1]"), Ok(parts(false, "::1", 80, "[::1]")));
    }

    #[test]
    fn wrong_urls_say_why() {
        for (text, why) in [
            ("ftp://a", "must start with"),
            ("wss://a", "connection.websocket"),
            ("http://a/b", "paths belong to steps"),
            ("http://a:0", "no valid port"),
            ("http://a:99999", "no valid port"),
            ("http://", "no valid host"),
            ("http://u:p@a", "has a user"),
        ] {
            let message = url(text).unwrap_err();
            assert!(message.starts_with("target.url: ") && message.contains(why), "{message}");
        }
    }

    #[test]
    fn other_machines_need_permission() {
        let remote = r#"{"url": "http://192.0.2.1:80"}"#;
        assert!(problem(remote, 1).message.contains("192.0.2.1:80 is not this machine"));
        let hidden = r#"{"url": "http://127.0.0.1:80", "addresses": ["192.0.2.1:80"]}"#;
        assert_eq!(problem(hidden, 1).kind, "spec");
        assert!(make(spec(r#"{"url": "http://192.0.2.1:80", "allow_remote": true}"#, 1), 256).is_ok());
    }

    #[test]
    fn users_beyond_the_descriptor_limit_are_refused_before_the_run() {
        let problem = problem(r#"{"url": "http://127.0.0.1:80"}"#, 256);
        assert_eq!(problem.kind, "limit");
        assert!(problem.message.contains("256 users need"), "{}", problem.message);
    }

    #[test]
    fn source_addresses_must_be_ours() {
        let target = r#"{"url": "http://127.0.0.1:80", "source_addresses": ["127.0.0.9", "192.0.2.7"]}"#;
        assert!(problem(target, 1).message.starts_with("target.source_addresses[1]: 192.0.2.7"));
    }

    #[test]
    fn a_name_stands_for_the_addresses_that_its_sources_can_reach() {
        let found = || -> Vec<SocketAddr> { vec!["[::1]:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()] };
        let sources = |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        assert_eq!(reachable(found(), &[]), found());
        assert_eq!(reachable(found(), &sources(&["127.0.0.2", "127.0.0.3"])), found()[1..]);
        assert_eq!(reachable(found(), &sources(&["::1"])), found()[..1]);
        assert_eq!(reachable(found(), &sources(&["::1", "127.0.0.2"])), found(), "refused later, by the source");
    }

    #[test]
    fn of_several_addresses_the_one_that_answers_is_loaded() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // 0.0.0.0 leads here, but counts as another machine's.
        let [closed, open] = [[127, 0, 0, 9], [0, 0, 0, 0]].map(|ip| SocketAddr::from((ip, port)));
        assert_eq!(pick(&[closed, open], true), Some(open));
        assert_eq!(pick(&[closed, open], false), Some(closed), "no other machine is asked without permission");
        assert_eq!(pick(&[closed, closed], true), Some(closed), "none answers");
        assert_eq!(pick(&[], true), None);
    }

    #[test]
    fn pauses_have_the_mean_they_were_given() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut mean = |duration| (0..20_000).map(|_| draw(&duration, &mut rng) as f64).sum::<f64>() / 20_000.0;
        assert_eq!(mean(Duration::Constant { ns: 7 }), 7.0);
        assert!((mean(Duration::Uniform { min_ns: 1_000, max_ns: 3_000 }) - 2_000.0).abs() < 20.0);
        assert!((mean(Duration::Exponential { mean_ns: 1_000_000 }) - 1e6).abs() < 3e4);
    }

    #[test]
    fn sends_that_soon_follow_an_answer_are_known_from_the_pauses() {
        const OPEN: &str = r#"{"kind": "open", "arrivals": "poisson", "rate_per_s": 9, "max_in_flight": 9}"#;
        const CLOSED: &str = r#"{"kind": "closed", "users": 1}"#;
        const NONE: &str = r#"{"kind": "constant", "ns": 0}"#;
        const SHORT: &str = r#"{"kind": "uniform", "min_ns": 0, "max_ns": 100000}"#;
        const LONG: &str = r#"{"kind": "exponential", "mean_ns": 1000000}"#;
        for (model, pauses, follows) in [
            (OPEN, &[NONE][..], false),
            (OPEN, &[NONE, LONG], true),
            (OPEN, &[LONG, NONE], false),
            (CLOSED, &[LONG, NONE], true),
            (CLOSED, &[LONG, SHORT], true),
            (CLOSED, &[LONG, LONG], false),
        ] {
            let steps: Vec<_> = pauses.iter().map(|pause| format!(r#"{{"name": "a", "think": {pause}}}"#)).collect();
            let json = format!(
                r#"{{"protocol": 1, "target": {{"url": "http://127.0.0.1:80"}}, "scenario": [{}], "model": {model},
                    "phases": {{"drain_ns": 0, "deadline_ns": 1}}}}"#,
                steps.join(", ")
            );
            let plan = make(serde_json::from_str(&json).unwrap(), 256).unwrap_or_else(|_| panic!("{json}"));
            assert_eq!(plan.follows_within(10_000), follows, "{json}");
        }
    }
}
