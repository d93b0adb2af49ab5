//! Events as bytes (see [the format](super)).
//!
//! Pure: the caller takes finished chunks and writes them, in order and without gaps. Cost: some 30 ns an event, and a lookup
//! in a hash table for a path. Memory: the paths, and the chunk that is being filled.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    CHUNK_HEADER_BYTES, CHUNK_MAGIC, Context, Event, MAGIC, Meta, NAMED, PATHS_MAX,
    PATHS_MAX_BYTES, PathId, TEXT_MAX_BYTES, TICK_NS, VERSION, WORDS_MAX, What, tag, zigzag,
};

/// A chunk is finished when its payload has so many bytes: a few thousand events.
pub const CHUNK_BYTES: usize = 64 << 10;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Encoder {
    context: Context,
    paths: HashMap<Arc<[u8]>, PathId>,
    /// The path that was defined last: the next one shares its beginning.
    last_path: Arc<[u8]>,
    path_bytes: usize,
    /// The chunk that is being filled, with room for its header.
    chunk: Vec<u8>,
}

impl Encoder {
    /// Of a recording of this run. Returns the bytes that it begins with, too: they are a recording without events.
    pub fn new(meta: &Meta) -> (Self, Vec<u8>) {
        let mut beginning = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let mut encoder = Encoder::default();
        encoder.begin_chunk();
        let chunk = &mut encoder.chunk;
        chunk.push(tag::EDGE);
        put(chunk, meta.began_s);
        put_text(chunk, &meta.folder);
        let words = meta.command.len().min(WORDS_MAX);
        put(chunk, words as u64);
        meta.command[..words].iter().for_each(|word| put_text(chunk, word));
        beginning.extend(encoder.take_chunk().into_iter().flatten());
        (encoder, beginning)
    }

    /// The number of paths so far.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// The number of a path. `None` if there are too many.
    pub fn path(&mut self, path: &[u8]) -> Option<PathId> {
        if let Some(&known) = self.paths.get(path) {
            return Some(known);
        }
        let is_full =
            self.paths.len() >= PATHS_MAX || self.path_bytes + path.len() > PATHS_MAX_BYTES;
        if is_full || path.len() > TEXT_MAX_BYTES {
            return None;
        }
        let number = PathId(self.paths.len() as u32);
        let shared = self.last_path.iter().zip(path).take_while(|(a, b)| a == b).count();
        self.chunk.push(tag::PATH);
        put(&mut self.chunk, shared as u64);
        put_text(&mut self.chunk, &path[shared..]);
        self.path_bytes += path.len();
        self.last_path = path.into();
        self.paths.insert(Arc::clone(&self.last_path), number);
        self.context.ends.push(0);
        Some(number)
    }

    /// Adds an event. Its path is one that [`path`](Self::path) has given.
    pub fn push(&mut self, event: &Event) {
        let at = self.chunk.len();
        self.chunk.push(0);
        let mut flags = 0;
        if let What::Close { lost } = event.what {
            self.chunk[at] = tag::EDGE | tag::SAME_PROCESS;
            put(&mut self.chunk, lost);
            return;
        }
        match event.process == self.context.process {
            true => flags |= tag::SAME_PROCESS,
            false => put(&mut self.chunk, event.process.into()),
        }
        self.context.process = event.process;
        let (began, took) = (event.at_ns / TICK_NS, event.took_ns / TICK_NS);
        put(&mut self.chunk, zigzag(began.wrapping_sub(self.context.ended) as i64));
        put(&mut self.chunk, took);
        self.context.ended = began.wrapping_add(took);
        let kind = match &event.what {
            What::Begins { parent, name } => {
                put(&mut self.chunk, (*parent).into());
                put_text(&mut self.chunk, name);
                tag::BEGINS
            }
            What::Ends => tag::ENDS,
            What::Touch { path, acts } => {
                put(&mut self.chunk, path.0.into());
                self.chunk.push(acts.bits());
                tag::TOUCH
            }
            What::Named { path } => {
                put(&mut self.chunk, path.0.into());
                self.chunk.push(NAMED);
                tag::TOUCH
            }
            &What::Read { file, offset_bytes, length_bytes, origin } => {
                flags |= self.put_part(file, offset_bytes, length_bytes);
                tag::READ + origin as u8
            }
            What::Close { .. } => tag::EDGE, // Done above.
        };
        self.chunk[at] = kind | flags;
    }

    fn put_part(&mut self, file: PathId, offset_bytes: u64, length_bytes: u64) -> u8 {
        let (context, chunk, mut flags) = (&mut self.context, &mut self.chunk, 0);
        match file.0 == context.file {
            true => flags |= tag::SAME_FILE,
            false => put(chunk, file.0.into()),
        }
        context.file = file.0;
        let end = &mut context.ends[file.0 as usize];
        match offset_bytes == *end {
            true => flags |= tag::GOES_ON,
            false => put(chunk, zigzag(offset_bytes.wrapping_sub(*end) as i64)),
        }
        *end = offset_bytes.wrapping_add(length_bytes);
        match length_bytes == context.length_bytes {
            true => flags |= tag::SAME_LENGTH,
            false => put(chunk, length_bytes),
        }
        context.length_bytes = length_bytes;
        flags
    }

    /// Bytes of the chunk that is being filled.
    pub fn waiting_bytes(&self) -> usize {
        self.chunk.len() - CHUNK_HEADER_BYTES
    }

    /// Finishes the chunk. `None` if it is empty.
    pub fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let length = self.waiting_bytes();
        if length == 0 {
            return None;
        }
        let crc = crc32fast::hash(&self.chunk[CHUNK_HEADER_BYTES..]);
        self.chunk[..4].copy_from_slice(CHUNK_MAGIC);
        self.chunk[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        self.chunk[8..12].copy_from_slice(&crc.to_le_bytes());
        let chunk = std::mem::take(&mut self.chunk);
        self.begin_chunk();
        Some(chunk)
    }

    fn begin_chunk(&mut self) {
        self.chunk.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
        self.chunk.resize(CHUNK_HEADER_BYTES, 0);
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(TEXT_MAX_BYTES)];
    put(out, text.len() as u64);
    out.extend_from_slice(text);
}
