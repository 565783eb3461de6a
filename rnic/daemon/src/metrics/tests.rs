use std::net::Shutdown;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const TEXT: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n";
/// How long a test waits for what happens at once.
const LIMIT: Duration = Duration::from_secs(30);

/// An endpoint on a Unix socket, and how often its text was made.
struct Bench {
    _directory: tempfile::TempDir,
    path: PathBuf,
    made: Arc<AtomicU32>,
    _endpoint: MetricsEndpoint,
}

impl Bench {
    fn new(patience: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.sock");
        let made = Arc::new(AtomicU32::new(0));
        let count = made.clone();
        let render = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Some(TEXT.to_owned())
        };
        let address = MetricsAddress::Unix(path.clone());
        let listener = MetricsListener::bind(&address).unwrap();
        let endpoint = listener.with_patience(Box::new(render), patience);
        Self {
            _directory: directory,
            path,
            made,
            _endpoint: endpoint.unwrap(),
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        answer(&mut stream)
    }
}

fn answer(stream: &mut UnixStream) -> String {
    let mut answer = String::new();
    // A connection that is closed with bytes unread ends in ECONNRESET behind the answer.
    match stream.read_to_string(&mut answer) {
        Ok(_) => answer,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_scraper_gets_the_text_with_its_length_and_format() {
    let bench = Bench::new(PATIENCE);
    let answer = bench.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", TEXT.len())),
        "{head}"
    );
    assert_eq!(body, TEXT);
}

#[test]
fn everything_else_is_refused_by_its_status() {
    let bench = Bench::new(PATIENCE);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /metrics\r\n\r\n", "400"),
        ("GET /metrics SPDY/3\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
        ("\u{0}\u{1}\u{2} \n\n", "400"),
    ] {
        let answer = bench.ask(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {answer}"
        );
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(5000));
    assert!(bench.ask(&long).starts_with("HTTP/1.1 431 "));
    assert_eq!(bench.made.load(Ordering::Relaxed), 0);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let bench = Bench::new(LIMIT);
    let mut stream = bench.connect();
    for byte in b"GET /metrics?x=1 HTTP/1.0\n\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(answer(&mut stream).ends_with(TEXT));
}

#[test]
fn who_says_nothing_is_closed_and_keeps_nobody_else() {
    let bench = Bench::new(Duration::from_millis(300));
    let mut silent = bench.connect();
    assert!(bench.ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with(TEXT));
    assert_eq!(answer(&mut silent), "");
}

/// As many as come: the oldest give way, and the last is served.
#[test]
fn scrapers_beyond_the_bound_take_the_place_of_the_oldest() {
    let bench = Bench::new(LIMIT);
    let mut silent: Vec<_> = (0..4 * SCRAPERS).map(|_| bench.connect()).collect();
    assert!(bench.ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with(TEXT));
    assert_eq!(answer(&mut silent[0]), "");
}

#[test]
fn the_text_is_not_made_for_each_who_asks() {
    let bench = Bench::new(PATIENCE);
    let begun = Instant::now();
    for _ in 0..50 {
        bench.ask("GET /metrics HTTP/1.1\r\n\r\n");
    }
    let most = begun.elapsed().as_millis() / FRESH.as_millis() + 1;
    assert!(u128::from(bench.made.load(Ordering::Relaxed)) <= most);
}

#[test]
fn who_leaves_in_the_middle_of_the_answer_costs_nothing() {
    let bench = Bench::new(PATIENCE);
    for _ in 0..20 {
        let mut stream = bench.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    assert!(bench.ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with(TEXT));
}

#[test]
fn the_file_goes_with_the_endpoint_and_a_stale_one_gives_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.sock");
    drop(UnixListener::bind(&path).unwrap());
    let address = MetricsAddress::Unix(path.clone());
    let listener = MetricsListener::bind(&address).unwrap();
    let endpoint = listener.start(Box::new(|| None)).unwrap();
    let taken = MetricsListener::bind(&address).err().unwrap().to_string();
    assert!(taken.contains("--metrics"), "{taken}");
    drop(endpoint);
    assert!(!path.exists());
}

#[test]
fn only_the_loopback_and_unix_sockets_are_for_metrics() {
    let parse = |text: &str| text.parse::<MetricsAddress>();
    for text in [
        "127.0.0.1:9400",
        "[::1]:9400",
        "unix:/run/rnicd-metrics.sock",
    ] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    for text in [
        "0.0.0.0:9400",
        "198.18.0.1:9400",
        "[::]:1",
        "unix:",
        "9400",
        "",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}
