//! `std::io`'s traits: on a stream that one has, and on one that threads share.

use std::io::{BufRead, Read, Seek, SeekFrom, Write};

use rustix::io::Errno;

use crate::backplane::current::Mode;
use crate::error::Error;
use crate::stream::Stream;

impl Read for &Stream {
    /// As figure 9: a region, a copy with the stream unlocked. Long reads go past the stream's memory.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if buffer.len() >= 4096
            && let Some(read) = self.read_direct(buffer)
        {
            return Ok(read?);
        }
        let region = self.alloc_some(Mode::Read, buffer.len())?;
        let bytes = region.len();
        buffer[..bytes].copy_from_slice(&region);
        region.free()?;
        Ok(bytes)
    }
}

impl Write for &Stream {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        if data.len() >= 16 << 10
            && let Some(written) = self.write_direct(data)
        {
            return Ok(written?);
        }
        let mut region = self.alloc_in(Mode::Write, data.len())?;
        region.copy_from_slice(data);
        match region.free() {
            // It is taken, and who tried again would have it twice: what is flushed, or needs memory, meets it again.
            Err(Error::Os(Errno::AGAIN | Errno::INTR)) => {}
            freed => freed?,
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(Stream::flush(self)?)
    }
}

impl Seek for &Stream {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        Ok(Stream::seek(self, to)?)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Write::flush(&mut &*self)
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        Seek::seek(&mut &*self, to)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        Ok(crate::region::data_at_hand(self)?)
    }

    fn consume(&mut self, bytes: usize) {
        self.pass(bytes);
    }
}
