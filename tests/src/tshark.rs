//! What tshark, a dissector that is not ours, finds in a capture.
//!
//! tshark reports a bad MPA CRC only in the text of the CRC's line, never as an expert item, so
//! its PDML (one element a line) is read. Two things of tshark must be kept off: its guess that a
//! Send is RPC over RDMA, and port 4420, which it takes for NVMe. Of DDP over SCTP it knows DDP; the chunks
//! and session control messages of RFC 5043 are shown by a script in Lua.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The dissector of RFC 5043.
const SCRIPT: &str = concat!(
    "lua_script:",
    env!("CARGO_MANIFEST_DIR"),
    "/interop/sctp/ddp_sctp.lua"
);

/// Everything that a capture holds, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dissection {
    pub frames: u64,
    pub tcp: u64,
    /// MPA request frames (RFC 5044 section 7.1.1).
    pub requests: u64,
    /// MPA reply frames.
    pub replies: u64,
    pub fpdus: u64,
    /// FPDUs whose CRC32C tshark found right.
    pub good_crcs: u64,
    /// FPDUs whose CRC32C tshark found wrong.
    pub bad_crcs: u64,
    pub sctp: u64,
    /// SCTP's chunks by their type, under tshark's names: `DATA`, `INIT_ACK`...
    pub chunks: BTreeMap<String, u64>,
    /// Session control messages by function: `Initiate`, `Enhanced Accept`...
    pub session_control: BTreeMap<String, u64>,
    /// DDP Segment Chunks.
    pub segment_chunks: u64,
    /// TCP and SCTP checksums found right.
    pub good_checksums: u64,
    /// DDP segments by RDMAP opcode, under tshark's names: `Send`, `Write`, `Read Request`...
    pub opcodes: BTreeMap<String, u64>,
    /// Malformed packets and expert items of severity error: frame number and message.
    pub errors: Vec<(u64, String)>,
    /// Where CRCs are: frame number from 1, and offset in the frame.
    pub crc_positions: Vec<(u64, usize)>,
}

impl Dissection {
    /// Runs tshark on a capture file.
    #[must_use]
    pub fn of(capture: &Path) -> Self {
        let output = Command::new("tshark")
            .args(["--disable-protocol", "rpcordma", "-T", "pdml"])
            .args(["-X", SCRIPT, "-o", "sctp.checksum:crc-32c"])
            .args([
                "-o",
                "tcp.check_checksum:TRUE",
                "-o",
                "ip.check_checksum:TRUE",
                "-r",
            ])
            .arg(capture)
            .output()
            .unwrap_or_else(|error| {
                panic!("can't run tshark (scripts/setup installs it): {error}")
            });
        assert!(
            output.status.success(),
            "tshark can't read {}: {}",
            capture.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let mut dissection = Self::default();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut message = String::new();
        for line in text.lines() {
            dissection.line(line.trim_start(), &mut message);
        }
        dissection
    }

    /// DDP segments of an opcode.
    #[must_use]
    pub fn opcode(&self, name: &str) -> u64 {
        self.opcodes.get(name).copied().unwrap_or(0)
    }

    fn line(&mut self, line: &str, message: &mut String) {
        let name = attribute(line, "name").unwrap_or_default();
        let shown = attribute(line, "showname").unwrap_or_default();
        if line == "<packet>" {
            self.frames += 1;
        }
        match name {
            "tcp" => self.tcp += u64::from(line.starts_with("<proto ")),
            "sctp" => self.sctp += u64::from(line.starts_with("<proto ")),
            "sctp.chunk_type" => count(&mut self.chunks, shown),
            "ddp_sctp.function" => count(&mut self.session_control, shown),
            "ddp_sctp.segment" => self.segment_chunks += 1,
            "tcp.checksum.status" | "sctp.checksum.status" => {
                self.good_checksums += u64::from(shown.ends_with("Good"))
            }
            "iwarp_mpa.req" => self.requests += 1,
            "iwarp_mpa.rep" => self.replies += 1,
            "iwarp_mpa.fpdu" => self.fpdus += 1,
            "iwarp_mpa.crc_check" => {
                if shown.contains("(Good CRC32)") {
                    self.good_crcs += 1;
                } else {
                    self.bad_crcs += 1;
                }
                let position = attribute(line, "pos").and_then(|text| text.parse().ok());
                self.crc_positions
                    .push((self.frames, position.unwrap_or(0)));
            }
            "iwarp_rdma.opcode" => count(&mut self.opcodes, shown),
            "_ws.malformed" | "_ws.lua.error" => self.errors.push((self.frames, shown.to_owned())),
            "_ws.expert.message" => shown.clone_into(message),
            "_ws.expert.severity" if shown.ends_with("Error") => {
                self.errors.push((self.frames, message.clone()));
            }
            _ => {}
        }
    }
}

/// Counts the name in what tshark shows of a field: `... OpCode: Send (3)`.
fn count(all: &mut BTreeMap<String, u64>, shown: &str) {
    let name = shown.split(": ").nth(1).unwrap_or(shown);
    let name = match name.rsplit_once(" (") {
        Some((name, _)) => name,
        None => name,
    };
    *all.entry(name.to_owned()).or_default() += 1;
}

/// All values of a field, of each FPDU that has it, in their order in the capture.
#[must_use]
pub fn values(capture: &Path, name: &str) -> Vec<String> {
    let fields = field(capture, name);
    let values = fields.iter().flat_map(|of_frame| of_frame.split(','));
    let values = values.filter(|value| !value.is_empty());
    values.map(str::to_owned).collect()
}

/// One field of every frame, empty where a frame has none.
#[must_use]
pub fn field(capture: &Path, name: &str) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-T", "fields", "-e", name, "-r"])
        .arg(capture)
        .output()
        .unwrap_or_else(|error| panic!("can't run tshark (scripts/setup installs it): {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// How many frames a display filter leaves. The checksums of UDP and SCTP are looked at, and port 9899 is SCTP's.
#[must_use]
pub fn frames(capture: &Path, filter: &str) -> usize {
    let shown = Command::new("tshark")
        .args(["-o", "udp.check_checksum:TRUE"])
        .args(["-o", "sctp.checksum:crc-32c"])
        .args(["-d", "udp.port==9899,sctp", "-Y", filter, "-r"])
        .arg(capture)
        .output()
        .unwrap_or_else(|error| panic!("can't run tshark (scripts/setup installs it): {error}"));
    let error = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success(), "{filter}: {error}");
    shown.stdout.iter().filter(|byte| **byte == b'\n').count()
}

/// The value of an attribute in a line of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].ends_with(' ');
        rest = &rest[at + name.len()..];
        if before && let Some(value) = rest.strip_prefix("=\"") {
            return value.split('"').next();
        }
    }
    None
}

/// Writes a copy of a pcapng file in which one byte of one frame is inverted.
pub fn damaged_copy(from: &Path, to: &Path, frame: u64, offset: usize) {
    const ENHANCED_PACKET_BLOCK: u32 = 6;
    const PACKET_DATA: usize = 28;
    let mut file = std::fs::read(from).expect("the capture can be read");
    let word = |file: &[u8], at: usize| {
        let bytes = file[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    };
    let (mut at, mut number) = (0, 0);
    while at + 8 <= file.len() {
        let length = word(&file, at + 4) as usize;
        number += u64::from(word(&file, at) == ENHANCED_PACKET_BLOCK);
        if number == frame {
            file[at + PACKET_DATA + offset] ^= 0xff;
            std::fs::write(to, file).expect("the copy can be written");
            return;
        }
        at += length;
    }
    panic!("{} has no frame {frame}", from.display());
}
