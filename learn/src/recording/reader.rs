//! Reads a recording, event by event (see [the format](super)).
//!
//! Every chunk is checked before it is used. The first one that is cut off or damaged ends the recording, and
//! [`Reader::ending`] says so. No count is believed before its bytes are there. Memory: the paths, and one chunk.

use std::io::{self, Read};
use std::sync::Arc;

use super::{
    CHUNK_HEADER_BYTES, CHUNK_MAGIC, CHUNK_MAX_BYTES, Context, Event, HEADER_BYTES, MAGIC, Meta,
    NAMED, Origin, PATHS_MAX, PATHS_MAX_BYTES, PathId, TEXT_MAX_BYTES, TICK_NS, VERSION,
    VERSION_MIN, WORDS_MAX, What, tag, unzigzag,
};
use crate::steps::Acts;

/// Why a file is no recording at all.
#[derive(Debug)]
pub enum Refusal {
    /// It cannot be read.
    Io(io::Error),
    /// It does not begin as one.
    NotOne,
    /// It was written by another version.
    Version(u32),
    /// It ends within its first chunk.
    Cut,
    /// Its first chunk is damaged.
    Damaged,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Io(error) => error.fmt(f),
            Refusal::NotOne => f.write_str("it is no recording of `foretell record`; make one with `foretell record -o FILE -- PROGRAM`"),
            Refusal::Version(version) => write!(f, "it is a recording of version {version}, and this foretell reads versions {VERSION_MIN} to {VERSION}; record anew"),
            Refusal::Cut => f.write_str("the recording stopped before anything was written; record anew"),
            Refusal::Damaged => f.write_str("the recording is damaged at its beginning; record anew"),
        }
    }
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is not read to its end.
    Ahead,
    /// With the run.
    Whole {
        /// Events that could not be recorded.
        lost: u64,
    },
    /// Before the run has ended: the recorder was killed, or the disk was full.
    Cut,
    /// Its next part is damaged.
    Damaged,
}

impl Ending {
    /// What is missing of the recording, for people. `None` if nothing is, or that is not known yet.
    pub fn problem(self) -> Option<&'static str> {
        match self {
            Ending::Ahead | Ending::Whole { .. } => None,
            Ending::Cut => Some(
                "stopped early: the recording ends without the end of the run (foretell was killed, or the disk was full)",
            ),
            Ending::Damaged => Some("damaged: what follows the damage is not used"),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    version: u32,
    meta: Meta,
    paths: Vec<Arc<[u8]>>,
    path_bytes: usize,
    context: Context,
    chunk: Vec<u8>,
    /// The next byte of the chunk.
    at: usize,
    ending: Ending,
}

/// Whether a file that begins so is a recording.
pub fn is_recording(beginning: &[u8]) -> bool {
    beginning.starts_with(MAGIC)
}

impl<R: Read> Reader<R> {
    /// Checks the beginning.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn new(mut input: R) -> Result<Self, Refusal> {
        let mut header = [0; HEADER_BYTES];
        input.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Refusal::NotOne,
            _ => Refusal::Io(error),
        })?;
        if !is_recording(&header) {
            return Err(Refusal::NotOne);
        }
        let version = number_at(&header, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Refusal::Version(version));
        }
        let mut reader = Reader {
            input,
            version,
            meta: Meta::default(),
            paths: Vec::new(),
            path_bytes: 0,
            context: Context::default(),
            chunk: Vec::new(),
            at: 0,
            ending: Ending::Ahead,
        };
        if !reader.next_chunk().map_err(Refusal::Io)? {
            return Err(match reader.ending {
                Ending::Cut => Refusal::Cut,
                _ => Refusal::Damaged,
            });
        }
        reader.meta = reader.take_meta().ok_or(Refusal::Damaged)?;
        Ok(reader)
    }

    /// Whether it says which paths are [named](What::Named) by command lines of the programs that the run has started.
    pub fn tells_names(&self) -> bool {
        self.version >= 2
    }

    /// What it is a recording of.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The paths so far, by their numbers.
    pub fn paths(&self) -> &[Arc<[u8]>] {
        &self.paths
    }

    /// How it ends, once all events are read.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The next event. Paths that it names are known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        while self.ending == Ending::Ahead {
            if self.at == self.chunk.len() && !self.next_chunk()? {
                break;
            }
            match self.take_event() {
                Some(Some(event)) => return Ok(Some(event)),
                Some(None) => {}
                None => self.ending = Ending::Damaged,
            }
        }
        Ok(None)
    }

    /// Reads the next chunk. Otherwise it says how the recording ends.
    fn next_chunk(&mut self) -> io::Result<bool> {
        let mut header = [0; CHUNK_HEADER_BYTES];
        let length = read_up_to(&mut self.input, &mut header)?;
        let bytes = number_at(&header, 4) as usize;
        let is_chunk = &header[..4] == CHUNK_MAGIC && (1..=CHUNK_MAX_BYTES).contains(&bytes);
        if length < CHUNK_HEADER_BYTES || !is_chunk {
            let is_cut = length < CHUNK_HEADER_BYTES;
            self.ending = if is_cut { Ending::Cut } else { Ending::Damaged };
            return Ok(false);
        }
        self.chunk.resize(bytes, 0);
        let length = read_up_to(&mut self.input, &mut self.chunk)?;
        self.at = 0;
        if length < bytes || crc32fast::hash(&self.chunk) != number_at(&header, 8) {
            self.ending = if length < bytes { Ending::Cut } else { Ending::Damaged };
            return Ok(false);
        }
        Ok(true)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.chunk.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<&[u8]> {
        let length = usize::try_from(self.number()?).ok().filter(|&all| all <= TEXT_MAX_BYTES)?;
        let text = self.chunk.get(self.at..self.at + length)?;
        self.at += length;
        Some(text)
    }

    fn take_meta(&mut self) -> Option<Meta> {
        if self.byte()? != tag::EDGE {
            return None;
        }
        let began_s = self.number()?;
        let folder = self.text()?.into();
        let words = usize::try_from(self.number()?).ok().filter(|&words| words <= WORDS_MAX)?;
        let command: Option<Vec<_>> = (0..words).map(|_| self.text().map(Arc::from)).collect();
        Some(Meta { command: command?, folder, began_s })
    }

    fn take_path(&mut self) -> Option<()> {
        let shared = usize::try_from(self.number()?).ok()?;
        let last = self.paths.last().cloned().unwrap_or_default();
        let mut path = last.get(..shared)?.to_vec();
        path.extend_from_slice(self.text()?);
        self.path_bytes += path.len();
        let fits = path.len() <= TEXT_MAX_BYTES
            && self.paths.len() < PATHS_MAX
            && self.path_bytes <= PATHS_MAX_BYTES;
        self.paths.push(fits.then(|| path.into())?);
        self.context.ends.push(0);
        Some(())
    }

    fn path(&mut self) -> Option<PathId> {
        let number = self.small()?;
        ((number as usize) < self.paths.len()).then_some(PathId(number))
    }

    /// The event, if the next tag is of one. `None` if the bytes are none.
    fn take_event(&mut self) -> Option<Option<Event>> {
        let head = self.byte()?;
        let (kind, flags) = (head & tag::KINDS, head & !tag::KINDS);
        if kind == tag::PATH {
            self.take_path()?;
            return Some(None);
        }
        if kind == tag::EDGE {
            let lost = self.number()?;
            self.ending = Ending::Whole { lost };
            let (at_ns, what) = (self.context.ended.saturating_mul(TICK_NS), What::Close { lost });
            return Some(Some(Event { at_ns, took_ns: 0, process: 0, what }));
        }
        if flags & tag::SAME_PROCESS == 0 {
            self.context.process = self.small()?;
        }
        let process = self.context.process;
        let began = self.context.ended.wrapping_add(unzigzag(self.number()?) as u64);
        let took = self.number()?;
        self.context.ended = began.wrapping_add(took);
        let what = match kind {
            tag::BEGINS => {
                let parent = self.small()?;
                What::Begins { parent, name: self.text()?.into() }
            }
            tag::ENDS => What::Ends,
            tag::TOUCH => {
                let path = self.path()?;
                match self.byte()? {
                    NAMED => What::Named { path },
                    acts => What::Touch { path, acts: Acts::from_bits(acts) },
                }
            }
            _ => self.take_read(kind, flags)?,
        };
        let nanos = |ticks: u64| ticks.saturating_mul(TICK_NS);
        Some(Some(Event { at_ns: nanos(began), took_ns: nanos(took), process, what }))
    }

    fn take_read(&mut self, kind: u8, flags: u8) -> Option<What> {
        let origin = match kind - tag::READ {
            0 => Origin::Call,
            1 => Origin::Pages,
            _ => Origin::Outside,
        };
        if flags & tag::SAME_FILE == 0 {
            self.context.file = self.small()?;
        }
        let file = PathId(self.context.file);
        let mut offset_bytes = *self.context.ends.get(file.0 as usize)?;
        if flags & tag::GOES_ON == 0 {
            offset_bytes = offset_bytes.wrapping_add(unzigzag(self.number()?) as u64);
        }
        if flags & tag::SAME_LENGTH == 0 {
            self.context.length_bytes = self.number()?;
        }
        let length_bytes = self.context.length_bytes;
        self.context.ends[file.0 as usize] = offset_bytes.wrapping_add(length_bytes);
        Some(What::Read { file, offset_bytes, length_bytes, origin })
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

/// Reads until `buffer` is full or the input ends. Returns the bytes read.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
