//! What a script says, as values. How it is written is in README.md.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use userspace_tcp::Config;

#[derive(Debug)]
pub struct Script {
    pub settings: Settings,
    pub steps: Vec<Step>,
}

/// What its `config` lines say.
#[derive(Debug, Clone)]
pub struct Settings {
    pub stack: Config,
    /// Our initial sequence number, if it has to be a certain one.
    pub iss: Option<u32>,
    pub irs: u32,
    pub ipv6: bool,
    /// The layer above needs every byte at once no more.
    pub consumes: bool,
    /// The window field of segments that don't say one.
    pub peer_window: u16,
    /// PSH counts also where a line does not write it.
    pub exact_push: bool,
    /// How late a segment or an event may be.
    pub tolerance: Duration,
}

impl Settings {
    /// Whether the stack may use ECN: then a line without `ecn=` says nothing of it.
    pub fn ecn(&self) -> bool {
        self.stack.ecn || self.stack.congestion == userspace_tcp::CongestionControl::Dctcp
    }
}

/// One line that does something.
#[derive(Debug)]
pub struct Step {
    pub place: Place,
    pub when: When,
    pub action: Action,
    pub peer: u16,
}

/// Where a line stands.
#[derive(Debug, Clone)]
pub struct Place {
    pub file: Rc<str>,
    /// From 1.
    pub line: usize,
    /// The line itself, behind substitution.
    pub text: Rc<str>,
    /// The `do` line that brought it.
    pub by: Option<Rc<Place>>,
}

impl Place {
    /// The place in the script itself, not in what it includes.
    pub fn outermost(&self) -> &Place {
        self.by.as_ref().map_or(self, |by| by.outermost())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the instant of the line before, ahead of anything the stack sends in it.
    Together,
    /// So long after the line before.
    Relative { from: Duration, to: Duration },
    /// So long after the start of the script.
    Absolute { from: Duration, to: Duration },
}

#[derive(Debug)]
pub enum Action {
    Inject(SegmentLine),
    Expect(SegmentLine),
    Call(Call),
    Happens(Happening),
    Ask(Question),
    Shown(Shown),
}

impl Action {
    /// Whether it does something to the stack.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Inject(_) | Self::Call(_))
    }

    /// Whether it waits for something of the stack.
    pub fn is_expectation(&self) -> bool {
        matches!(self, Self::Expect(_) | Self::Happens(_))
    }

    /// Whether it only looks at what is there.
    pub fn is_look(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Shown(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<T> {
    Any,
    Is(T),
}

impl<T: PartialEq> Field<T> {
    pub fn admits(&self, value: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => wanted == value,
        }
    }
}

/// A segment, relative to the initial sequence numbers.
#[derive(Debug, Clone)]
pub struct SegmentLine {
    pub flags: Field<u8>,
    pub seq: Field<i64>,
    pub len: Field<u32>,
    pub ack: Option<Field<i64>>,
    pub window: Option<Field<u16>>,
    pub urgent: Option<u16>,
    pub options: OptionsLine,
    pub ecn: Option<userspace_net::Ecn>,
    pub fragment: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct OptionsLine {
    /// NOPs are left out: no rule asks for them.
    pub list: Vec<Opt>,
    /// `<*>`: others may be there.
    pub open: bool,
    /// Timestamps must not be there.
    pub no_timestamps: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opt {
    Mss(Field<u16>),
    WindowScale(Field<u8>),
    SackPermitted,
    Timestamps { value: Field<u32>, echo: Field<u32> },
    Sack(Vec<(i64, i64)>),
    Raw(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Connect {
        mss: u16,
        refused: Option<String>,
    },
    Listen {
        backlog: usize,
    },
    Unlisten,
    Send {
        count: usize,
        len: u32,
        refused: Option<String>,
    },
    Close {
        gone: bool,
    },
    Abort {
        gone: bool,
    },
    /// Up to this sequence number.
    Consumed {
        to: u64,
    },
    LinkHolds,
    LinkReturns,
    /// The next SYN of either side begins another connection between the same ends.
    Incarnation {
        irs: Option<u32>,
    },
    Icmp {
        error: userspace_tcp::IcmpError,
        seq: i64,
        taken: bool,
    },
    Keepalive(Option<userspace_tcp::KeepAlive>),
    UserTimeout(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    pub name: String,
    /// For those that bring a number.
    pub value: Option<u64>,
}

/// `name op value`.
#[derive(Debug, Clone)]
pub struct Question {
    pub name: String,
    pub op: Op,
    pub value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Is,
    IsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `count` of a thing, or just a count: `10`, `10*mss`.
    Number {
        count: u64,
        of: Option<String>,
    },
    Time(Duration),
    Word(String),
}

/// What the layer above got from the last segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shown {
    /// As sequence numbers.
    pub new: Option<Vec<(u64, u64)>>,
    pub in_order: Option<u64>,
}
