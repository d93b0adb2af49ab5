//! Decompresses zstd: all frames of a file, one after another (RFC 8878, section 3).

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a frame.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// See the [module](self).
pub(super) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_within_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(source: R) -> Self {
        Zstd { source, decoder: FrameDecoder::new(), is_within_frame: false }
    }

    /// Begins the next frame that has data; false if there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(in_words(&error)),
            }
        }
        Ok(false)
    }

    fn check_sum(&self) -> io::Result<()> {
        let given = self.decoder.get_checksum_from_data();
        match given.is_some() && given != self.decoder.get_calculated_checksum() {
            true => Err(io::Error::other("its checksum does not match")),
            false => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.is_within_frame && !self.next_frame()? {
                return Ok(0);
            }
            self.is_within_frame = true;
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            if self.decoder.is_finished() {
                self.check_sum()?;
                self.is_within_frame = false;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(|error| in_words(&error))?;
            }
        }
        Ok(0)
    }
}

/// Translates the decoder's errors, which name its own types.
fn in_words(error: &FrameDecoderError) -> io::Error {
    io::Error::other(match error {
        FrameDecoderError::WindowSizeTooBig { requested, max } => {
            format!(
                "its window of {requested} bytes is more than {max}; unpack it with zstd -dc --long=31"
            )
        }
        FrameDecoderError::DictNotProvided { .. } => {
            "it needs a dictionary; unpack it with zstd -dc -D DICTIONARY".to_owned()
        }
        FrameDecoderError::ReadFrameHeaderError(_) => "no frame begins where one should".to_owned(),
        _ => "its end is missing, or a block is damaged".to_owned(),
    })
}
