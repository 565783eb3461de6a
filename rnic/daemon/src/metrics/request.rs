//! As much of HTTP/1.1 as a scraper needs (RFC 9112): `GET /metrics`, answered once.

/// Bytes of a request's line and headers.
const REQUEST_MAX: usize = 4096;

/// How far a request has been read.
#[derive(Debug, Default)]
pub(super) struct Request(Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Metrics,
    Elsewhere,
    OtherMethod,
    Nonsense,
    TooMuch,
}

impl Request {
    /// Takes bytes in; what was asked, when that is known.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Asked> {
        if self.0.len() + bytes.len() > REQUEST_MAX {
            return Some(Asked::TooMuch);
        }
        self.0.extend_from_slice(bytes);
        let whole = [&b"\r\n\r\n"[..], b"\n\n"]
            .into_iter()
            .any(|end| self.0.windows(end.len()).any(|found| found == end));
        whole.then(|| self.asked())
    }

    fn asked(&self) -> Asked {
        let line = self.0.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
        let Ok(line) = std::str::from_utf8(line) else {
            return Asked::Nonsense;
        };
        let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
        let &[method, target, version] = &words[..] else {
            return Asked::Nonsense;
        };
        if !version.starts_with("HTTP/1.") {
            return Asked::Nonsense;
        }
        if method != "GET" {
            return Asked::OtherMethod;
        }
        match target.split('?').next() {
            Some("/metrics") => Asked::Metrics,
            _ => Asked::Elsewhere,
        }
    }
}

impl Asked {
    /// The answer to what is not to be had.
    pub(super) fn refusal(self) -> Vec<u8> {
        let (status, text) = match self {
            Self::Metrics | Self::Elsewhere => ("404 Not Found", "The metrics are at /metrics."),
            Self::OtherMethod => ("405 Method Not Allowed", "Only GET is for anything."),
            Self::Nonsense => ("400 Bad Request", "This is no HTTP/1.1."),
            Self::TooMuch => (
                "431 Request Header Fields Too Large",
                "4096 bytes are enough to ask.",
            ),
        };
        Self::refused(status, text)
    }

    /// Any other answer.
    pub(super) fn refused(status: &str, text: &str) -> Vec<u8> {
        let allow = if status.starts_with("405") {
            "Allow: GET\r\n"
        } else {
            ""
        };
        answer(
            status,
            "text/plain; charset=utf-8",
            allow,
            &format!("{text}\n"),
        )
    }
}

/// The answer with the metrics.
pub(super) fn found(text: &str) -> Vec<u8> {
    answer(
        "200 OK",
        "text/plain; version=0.0.4; charset=utf-8",
        "",
        text,
    )
}

fn answer(status: &str, content: &str, more: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{more}Connection: \
         close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
