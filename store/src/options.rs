//! What C gives: addresses, options and parts of files.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use foretell_cache::{CacheOptions, Segment};
use foretell_family::{Place, Recipe};

use crate::errors::Problem;

/// `FORETELL_ANY_ORDER`.
pub(crate) const ANY_ORDER: u32 = 1;

/// `struct foretell_setting`.
#[repr(C)]
pub(crate) struct Setting {
    name: *const c_char,
    value: *const c_char,
}

/// `struct foretell_store_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the structure as the program knows it.
    size: usize,
    budget_bytes: u64,
    block_bytes: u64,
    depth: u32,
    timeout_ms: u32,
    settings: *const Setting,
    setting_count: usize,
    is_private: u32,
    reserved: u32,
    tier: *const c_char,
}

/// `struct foretell_segment`.
#[repr(C)]
#[derive(Debug)]
pub struct Part {
    offset_bytes: u64,
    length_bytes: u64,
}

const NO_OPTIONS: Options = Options {
    size: size_of::<Options>(),
    budget_bytes: 0,
    block_bytes: 0,
    depth: 0,
    timeout_ms: 0,
    settings: std::ptr::null(),
    setting_count: 0,
    is_private: 0,
    reserved: 0,
    tier: std::ptr::null(),
};

/// Bytes of the structure in the first version of the library. Later ones have more members, with 0 for the default.
const SIZE_MIN: usize = std::mem::offset_of!(Options, reserved) + size_of::<u32>();
/// A larger size is a structure that was not initialized.
const SIZE_MAX: usize = 4096;

/// The options of a program that may have been compiled with another version of the structure.
///
/// # Safety
/// `options` is NULL, or begins with a size and has as many bytes as it says.
unsafe fn read_options(options: *const Options) -> Result<Options, Problem> {
    if options.is_null() {
        return Ok(NO_OPTIONS);
    }
    let wrong =
        |why: &str| Problem::wrong(format!("{why}; begin with FORETELL_STORE_OPTIONS_INIT"));
    // SAFETY: the size is there, as the caller promises.
    let size = unsafe { options.cast::<usize>().read() };
    if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
        return Err(wrong(&format!("the options have a size of {size}")));
    }
    // SAFETY: as many bytes are there, as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    let (known, unknown) = bytes.split_at(size.min(size_of::<Options>()));
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(wrong(
            "the options have members that this version of the library does not know",
        ));
    }
    let mut read = NO_OPTIONS;
    // SAFETY: `read` has as many bytes at least, and is made of numbers and pointers, for which any bytes do.
    unsafe {
        std::ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut read).cast::<u8>(), known.len());
    }
    Ok(read)
}

/// The recipe of a store.
///
/// # Safety
/// `options` is NULL, or begins with a size and has as many bytes as it says; its settings are as many as it says, of C
/// strings, and its tier is NULL or one.
pub(crate) unsafe fn recipe_of(url: &OsStr, options: *const Options) -> Result<Recipe, Problem> {
    // SAFETY: the caller's promise.
    let options = unsafe { read_options(options)? };
    let place = place_of(url)?;
    let standard = CacheOptions::default();
    let or = |value: u64, standard: u64| if value == 0 { standard } else { value };
    let block_bytes = or(options.block_bytes, standard.block_bytes as u64);
    let cache = CacheOptions {
        budget_bytes: or(options.budget_bytes, standard.budget_bytes),
        block_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX),
    };
    cache.check().map_err(|error| Problem::of_cache(&error))?;
    if options.reserved != 0 || options.is_private > 1 {
        return Err(Problem::wrong("the options have unknown values; set the rest to 0".into()));
    }
    // SAFETY: the caller's promise.
    let settings = unsafe { settings_of(options.settings, options.setting_count)? };
    if !settings.is_empty() && matches!(place, Place::Folder(_)) {
        return Err(Problem::wrong("a folder has no settings; leave them out".into()));
    }
    // SAFETY: the caller's promise.
    let tier = unsafe { tier_of(options.tier)? };
    if tier.is_some() && matches!(place, Place::Folder(_)) {
        return Err(Problem::wrong("a folder has no shared tier; leave it out".into()));
    }
    Ok(Recipe {
        place,
        options: cache,
        depth: (options.depth > 0).then_some(options.depth as usize),
        deadline: Duration::from_millis(or(options.timeout_ms.into(), 60_000)),
        settings,
        is_shared: options.is_private == 0,
        tier,
    })
}

/// # Safety
/// `tier` is NULL or a C string.
unsafe fn tier_of(tier: *const c_char) -> Result<Option<String>, Problem> {
    if tier.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let tier = unsafe { CStr::from_ptr(tier) }.to_str();
    let tier = tier.map_err(|_| Problem::wrong("the tier's address is not UTF-8".into()))?;
    Ok(Some(tier.to_owned()))
}

fn place_of(url: &OsStr) -> Result<Place, Problem> {
    let folder = |path: &OsStr| {
        let path = std::path::absolute(Path::new(path));
        path.map(Place::Folder).map_err(|error| Problem::wrong(format!("the folder: {error}")))
    };
    match url.to_str().and_then(|text| text.split_once("://")) {
        Some(("file", path)) if path.starts_with('/') => folder(OsStr::from_bytes(&decoded(path))),
        Some(("file", _)) => Err(Problem::wrong("a folder is written as file:///folder".into())),
        Some(_) => Ok(Place::Address(url.to_string_lossy().into_owned())),
        None => folder(url),
    }
}

/// A path of an address, without its percent signs.
fn decoded(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, more @ ..] = rest {
        let digits = more.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = digits.filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, taken) = byte.filter(|_| *first == b'%').map_or((*first, 0), |byte| (byte, 2));
        bytes.push(byte);
        rest = &more[taken..];
    }
    bytes
}

/// # Safety
/// `settings` has `count` of them, of C strings.
unsafe fn settings_of(
    settings: *const Setting,
    count: usize,
) -> Result<Vec<(String, String)>, Problem> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if settings.is_null() {
        return Err(Problem::wrong("the settings are NULL".into()));
    }
    // SAFETY: the caller's promise.
    let settings = unsafe { std::slice::from_raw_parts(settings, count) };
    let text = |text: *const c_char| {
        if text.is_null() {
            return Err(Problem::wrong("a setting is NULL".into()));
        }
        // SAFETY: a C string, as the caller promises.
        let text = unsafe { CStr::from_ptr(text) }.to_str();
        text.map(str::to_owned).map_err(|_| Problem::wrong("a setting is not UTF-8".into()))
    };
    settings.iter().map(|setting| Ok((text(setting.name)?, text(setting.value)?))).collect()
}

/// Parts of a file; `None` for all of it.
///
/// # Safety
/// `segments` has `count` of them.
pub(crate) unsafe fn segments_of(
    segments: *const Part,
    count: usize,
) -> Result<Option<Vec<Segment>>, Problem> {
    if count == 0 {
        return Ok(None);
    }
    if segments.is_null() {
        return Err(Problem::wrong("the segments are NULL".into()));
    }
    // SAFETY: the caller's promise.
    let segments = unsafe { std::slice::from_raw_parts(segments, count) };
    let one = |part: &Part| {
        let &Part { offset_bytes, length_bytes } = part;
        let is_right = length_bytes > 0 && offset_bytes.checked_add(length_bytes).is_some();
        is_right.then_some(Segment { offset_bytes, length_bytes })
    };
    let segments: Option<Vec<Segment>> = segments.iter().map(one).collect();
    let wrong = || Problem::wrong("a segment is empty, or ends beyond any file".into());
    segments.map(Some).ok_or_else(wrong)
}
