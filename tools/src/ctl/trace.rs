//! Captured frames as pcapng files: one, or a ring of files of bounded size of which the oldest go.
//!
//! What programs exchange is in them, so they are made for their owner only.

mod pipe;

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rnic::admin::CapturedFrame;
use rnic_device::pcapng::{END_BYTES, FRAME_OVERHEAD, PcapngFile};
use rnic_host::files::create_for_owner;

pub use pipe::Ending;
use pipe::Pipe;

/// The smallest size of a file in a ring, in bytes: the largest frame fits it.
pub const SIZE_MIN: u64 = 128 << 10;

/// How files follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The most bytes of a file, at least [`SIZE_MIN`].
    pub size: u64,
    /// The most files, at least 1.
    pub files: usize,
}

/// The name of standard output, for a pipe.
pub const STDOUT: &str = "-";

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} can't be written: {source}", path.display())]
pub struct TraceError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl TraceError {
    /// Whether it was a pipe whose reader is gone.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Where frames go: a file, or a pipe.
type Output = PcapngFile<BufWriter<Box<dyn Write>>>;

/// The files of a capture.
#[expect(missing_debug_implementations, reason = "the pcapng file has none")]
pub struct Trace {
    base: PathBuf,
    ring: Option<Ring>,
    interface: String,
    snap: u32,
    ending: Ending,
    file: Output,
    /// Those that are there, the one that is written last.
    paths: VecDeque<PathBuf>,
    begun: u64,
    frames: u64,
    bytes_before: u64,
}

impl Trace {
    /// Begins the first file: `base` itself, or with a ring `base` with a number before its
    /// extension. [`STDOUT`] without a ring is standard output, to which `ending` bounds each write. `snap` is
    /// the most bytes of a frame, 0 for all.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn begin(
        base: &Path,
        ring: Option<Ring>,
        interface: &str,
        snap: u32,
        ending: &Ending,
    ) -> Result<Self, TraceError> {
        let path = match ring {
            Some(_) => numbered(base, 1),
            None => base.to_owned(),
        };
        Ok(Self {
            base: base.to_owned(),
            ring,
            interface: interface.to_owned(),
            snap,
            file: create(&path, interface, snap, ending)?,
            ending: ending.clone(),
            paths: VecDeque::from([path]),
            begun: 1,
            frames: 0,
            bytes_before: 0,
        })
    }

    /// Writes a frame, `lost` frames having been lost before it.
    ///
    /// # Errors
    ///
    /// When a file can't be written, made or removed.
    pub fn frame(&mut self, frame: &CapturedFrame<'_>, lost: u64) -> Result<(), TraceError> {
        let bytes = FRAME_OVERHEAD + frame.bytes.len() as u64 + END_BYTES;
        let full = |ring: Ring| self.file.bytes() + bytes > ring.size;
        if let Some(ring) = self.ring
            && full(ring)
        {
            self.turn(ring, lost)?;
        }
        let written = self
            .file
            .frame(frame.unix_ns, frame.direction, frame.bytes, frame.original);
        written.map_err(|source| self.failed(source))?;
        self.frames += 1;
        Ok(())
    }

    /// Lets others see what was written until now.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    /// Ends the last file.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn end(&mut self, lost: u64) -> Result<(), TraceError> {
        let ended = self.file.end(self.frames, lost);
        ended.map_err(|source| self.failed(source))
    }

    /// Frames written, also to files that are gone.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes written, also to files that are gone.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_before + self.file.bytes()
    }

    /// The files that are there, the oldest first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Ends a file and begins the next, for which the oldest may have to go.
    fn turn(&mut self, ring: Ring, lost: u64) -> Result<(), TraceError> {
        self.end(lost)?;
        self.bytes_before += self.file.bytes();
        while self.paths.len() >= ring.files {
            let Some(path) = self.paths.pop_front() else {
                break;
            };
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(TraceError { path, source });
                }
                // Somebody else may have taken it away.
                _ => {}
            }
        }
        self.begun += 1;
        let path = numbered(&self.base, self.begun);
        self.file = create(&path, &self.interface, self.snap, &self.ending)?;
        self.paths.push_back(path);
        Ok(())
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let path = self.paths.back().cloned().unwrap_or_default();
        TraceError { path, source }
    }
}

/// `trace.pcapng` as `trace-00001.pcapng`.
fn numbered(base: &Path, number: u64) -> PathBuf {
    let mut name = base.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:05}"));
    if let Some(extension) = base.extension() {
        name.push(".");
        name.push(extension);
    }
    base.with_file_name(name)
}

fn create(path: &Path, interface: &str, snap: u32, ending: &Ending) -> Result<Output, TraceError> {
    let to = match path == Path::new(STDOUT) {
        true => Pipe::stdout(ending.clone()).map(|pipe| Box::new(pipe) as Box<dyn Write>),
        false => create_for_owner(path).map(|file| Box::new(file) as Box<dyn Write>),
    };
    let begun = to.and_then(|to| PcapngFile::begin(BufWriter::new(to), interface, None, snap));
    begun.map_err(|source| TraceError {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
