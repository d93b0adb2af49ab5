//! A cache of files, replaced by least recent use. Sizes are in bytes; a file is in it as a whole or not at all.
//!
//! Every operation takes constant time, or a constant time for each file that is evicted.

/// No file.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
    /// 0 if the file is not in memory.
    bytes: u32,
}

/// Files in memory, the least recently used to go first.
#[derive(Debug)]
pub struct Memory {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl Memory {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        Memory { links: Vec::new(), newest: NONE, oldest: NONE, used_bytes: 0, capacity_bytes }
    }

    /// Whether a file is in memory.
    pub fn has(&self, file: u32) -> bool {
        self.links.get(file as usize).is_some_and(|link| link.bytes > 0)
    }

    /// Makes a file that is in memory the most recently used one.
    pub fn touch(&mut self, file: u32) {
        let bytes = self.remove(file);
        self.push(file, bytes);
    }

    /// Makes a file that is in memory the one that goes first.
    pub fn demote(&mut self, file: u32) {
        let bytes = self.remove(file);
        self.links[file as usize] = Link { newer: self.oldest, older: NONE, bytes: bytes as u32 };
        match self.oldest {
            NONE => self.newest = file,
            oldest => self.links[oldest as usize].older = file,
        }
        self.oldest = file;
        self.used_bytes += bytes;
    }

    /// Puts in a file of `bytes`, at least 1 and less than 4 GiB, as the most recently used one. What has to go for it is
    /// appended to `evicted`. A file that is larger than the cache is evicted itself.
    pub fn insert(&mut self, file: u32, bytes: u64, evicted: &mut Vec<u32>) {
        if bytes > self.capacity_bytes {
            evicted.push(file);
            return;
        }
        while self.used_bytes + bytes > self.capacity_bytes {
            let oldest = self.oldest;
            self.remove(oldest);
            evicted.push(oldest);
        }
        if file as usize >= self.links.len() {
            self.links.resize(file as usize + 1, Link { newer: NONE, older: NONE, bytes: 0 });
        }
        self.push(file, bytes);
    }

    /// Bytes of memory that this takes.
    pub fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }

    fn push(&mut self, file: u32, bytes: u64) {
        self.links[file as usize] = Link { newer: NONE, older: self.newest, bytes: bytes as u32 };
        match self.newest {
            NONE => self.oldest = file,
            newest => self.links[newest as usize].newer = file,
        }
        self.newest = file;
        self.used_bytes += bytes;
    }

    /// Takes out a file that is in memory, and returns its bytes.
    pub fn remove(&mut self, file: u32) -> u64 {
        let Link { newer, older, bytes } = self.links[file as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.links[file as usize].bytes = 0;
        self.used_bytes -= u64::from(bytes);
        u64::from(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_files_go() {
        let mut memory = Memory::new(100);
        let insert = |memory: &mut Memory, file, bytes| {
            let mut evicted = Vec::new();
            memory.insert(file, bytes, &mut evicted);
            evicted
        };
        assert_eq!(insert(&mut memory, 0, 40), [0u32; 0]);
        assert_eq!(insert(&mut memory, 1, 30), [0u32; 0]);
        assert_eq!(insert(&mut memory, 2, 30), [0u32; 0]);
        memory.touch(0);
        assert_eq!(insert(&mut memory, 3, 50), [1, 2]);
        assert_eq!(insert(&mut memory, 4, 101), [4], "larger than the cache");
        assert!(memory.has(0) && memory.has(3) && !memory.has(1) && !memory.has(4));
        memory.touch(3);
        memory.touch(3);
        memory.demote(3);
        memory.demote(3);
        assert_eq!(insert(&mut memory, 5, 100), [3, 0]);
        memory.demote(5);
        assert_eq!(insert(&mut memory, 5 - 1, 1), [5]);
        assert_eq!(insert(&mut memory, 5, 99), [0u32; 0]);
        assert_eq!(memory.used_bytes, 100);
    }
}
