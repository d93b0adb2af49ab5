//! What an ELF file says of itself, as far as it matters to the interposing library.
//!
//! The file may be damaged or hostile. Tables are bounded by [`TABLE_MAX_BYTES`], and every size is checked against the file. A
//! table that cannot be read counts as empty, because the library's own decision (`preload/src/executable.c`) needs no more
//! than the header and the segments.

use std::fs::File;
use std::ops::Range;

use object::elf::{
    DT_NEEDED, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, FileHeader32,
    FileHeader64, Machine, PT_LOAD,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef, elf};

/// The largest table of a file that is read. 64 MiB: ten times the symbols of the largest programs.
const TABLE_MAX_BYTES: u64 = 64 << 20;

/// Sections that only Go's linker writes.
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// The version of glibc that the library needs, as in `preload/src/executable.c`.
const NEEDED_VERSION: &[u8] = b"\0GLIBC_2.34\0";

/// Word size, byte order and machine of a file. A library works in programs of its own kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) bits: u8,
    is_little_endian: bool,
    machine: Machine,
}

impl Kind {
    /// The machine's usual name, or its number.
    pub(super) fn machine(self) -> String {
        let known = [
            (EM_X86_64, "x86-64"),
            (EM_386, "x86"),
            (EM_AARCH64, "AArch64"),
            (EM_ARM, "ARM"),
            (EM_RISCV, "RISC-V"),
            (EM_PPC64, "POWER"),
            (EM_S390, "S/390"),
        ];
        let name = known.into_iter().find(|&(number, _)| number == self.machine);
        name.map_or_else(|| format!("machine {}", self.machine.0), |(_, name)| name.into())
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Binary {
    pub(super) kind: Kind,
    /// What it is if it is no program, in words.
    pub(super) other: Option<&'static str>,
    /// Whether the file ends before its last part.
    pub(super) is_cut: bool,
    /// The dynamic linker that it names; `None` for a static program.
    pub(super) loader: Option<Vec<u8>>,
    pub(super) is_go: bool,
    /// Libraries that it is linked with.
    pub(super) needed: Vec<Vec<u8>>,
    /// Functions and variables that it takes from libraries.
    pub(super) imports: Vec<Vec<u8>>,
    /// Functions and variables that it gives to others.
    pub(super) exports: Vec<Vec<u8>>,
    /// Whether it is a C library, or its dynamic linker, of a version that suffices.
    pub(super) defines_needed_version: bool,
}

impl Binary {
    /// Reads `file`.
    ///
    /// # Errors
    /// It is no ELF file, or one that is cut off or damaged.
    pub(super) fn read(file: File) -> Result<Self, object::Error> {
        let cache = ReadCache::new(file);
        let data = Bounded(&cache);
        match object::FileKind::parse(data)? {
            object::FileKind::Elf32 => Self::of::<FileHeader32<Endianness>, _>(data),
            _ => Self::of::<FileHeader64<Endianness>, _>(data),
        }
    }

    fn of<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        data: R,
    ) -> Result<Self, object::Error> {
        let header = E::parse(data)?;
        let endian = header.endian()?;
        let kind = Kind {
            bits: if header.is_class_64() { 64 } else { 32 },
            is_little_endian: header.is_little_endian(),
            machine: header.e_machine(endian),
        };
        let segments = header.program_headers(endian, data)?;
        let length = data.len().unwrap_or(0);
        let is_beyond = |segment: &E::ProgramHeader| {
            let (offset, bytes) = segment.file_range(endian);
            segment.p_type(endian) == PT_LOAD && offset.saturating_add(bytes) > length
        };
        let loader = segments
            .iter()
            .find_map(|segment| segment.interpreter(endian, data).ok().flatten())
            .map(<[u8]>::to_vec);
        let mut binary = Binary {
            kind,
            other: other(header.e_type(endian), header.e_entry(endian).into()),
            is_cut: segments.iter().any(is_beyond),
            loader,
            is_go: false,
            needed: Vec::new(),
            imports: Vec::new(),
            exports: Vec::new(),
            defines_needed_version: false,
        };
        // Sections, which a stripped file may lack.
        if let Ok(sections) = header.sections(endian, data) {
            binary.is_go =
                GO_SECTIONS.iter().any(|name| sections.section_by_name(endian, name).is_some());
            if let Ok(symbols) = sections.symbols(endian, data, elf::SHT_DYNSYM) {
                for symbol in symbols.iter() {
                    let Ok(name) = symbol.name(endian, symbols.strings()) else { continue };
                    let list = match symbol.is_undefined(endian) {
                        true => &mut binary.imports,
                        false => &mut binary.exports,
                    };
                    list.push(name.to_vec());
                }
                let strings = sections.section(symbols.string_section());
                binary.defines_needed_version = strings
                    .and_then(|strings| strings.data(endian, data))
                    .is_ok_and(|text| holds(text, NEEDED_VERSION));
            }
            if let Ok(table) = sections.dynamic_table(endian, data) {
                let of_libraries = table.iter().filter(|entry| entry.tag == DT_NEEDED);
                let names = of_libraries.filter_map(|entry| table.string(entry).ok());
                binary.needed = names.map(<[u8]>::to_vec).collect();
            }
        }
        Ok(binary)
    }
}

/// What a file of this type is if it is no program. A library that may also be executed has a place where it begins.
fn other(of_type: elf::FileType, entry: u64) -> Option<&'static str> {
    match (of_type, entry) {
        (elf::ET_DYN, 0) => Some("a shared library"),
        (elf::ET_REL, _) => Some("an object file, which is to be linked"),
        (elf::ET_CORE, _) => Some("a core dump"),
        _ => None,
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A file of which no more than [`TABLE_MAX_BYTES`] are read at once.
#[derive(Clone, Copy)]
struct Bounded<'data>(&'data ReadCache<File>);

impl<'data> ReadRef<'data> for Bounded<'data> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        if size > TABLE_MAX_BYTES {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}
