//! The syntax of one line of strace: process, time, and the call with its arguments and result.
//!
//! ```text
//! 8145  1795349886.415031 openat(AT_FDCWD</tmp>, "a.txt", O_RDONLY) = 3</tmp/a.txt> <0.000013>
//! [pid  8145] 1795349886.415154 read(3,  <unfinished ...>
//! 1795349886.415202 <... read resumed>"hello\n", 4096) = 6
//! 8145  1795349886.415252 --- SIGCHLD {si_signo=SIGCHLD, ...} ---
//! 8145  1795349886.415283 +++ exited with 0 +++
//! ```
//!
//! Everything is a slice of the line. Strings and names stay escaped until [`decoded`] is called.

/// Arguments of a call that are kept.
const ARGUMENTS_MAX: usize = 6;
/// How a call's line ends if another process's line interrupts it. Newer versions may put a number before the
/// dots (strace/strace#152).
const UNFINISHED: &[u8] = b"<unfinished ";
/// How a call's line ends if strace stops following the process.
const DETACHED: &[u8] = b"<detached ...>";
/// Stands for a result that strace cannot read.
const UNAVAILABLE: &[u8] = b"<unavailable>";
/// The longest plausible call: a year, in nanoseconds.
const TOOK_NS_MAX: u64 = 366 * 24 * 3600 * 1_000_000_000;
/// How lines begin that strace writes between calls: its messages, the stacks of `-k`, and the data of `-e
/// read`.
const BETWEEN: [&[u8]; 5] = [b"strace: ", b"[ Process ", b"> ", b"| ", b"* "];
/// Follows the name of a deleted file.
const DELETED: &[u8] = b"(deleted)";

/// One line.
pub(super) struct Line<'a> {
    /// The process; `None` where strace follows only one.
    pub(super) pid: Option<u64>,
    /// Nanoseconds since 1970; `None` if the line has no time, or one in another form.
    pub(super) time_ns: Option<u64>,
    pub(super) event: Event<'a>,
}

/// The content of a line. `text` is the part after the call's opening bracket.
pub(super) enum Event<'a> {
    Whole {
        name: &'a [u8],
        done: Done<'a>,
        text: &'a [u8],
    },
    Begun {
        name: &'a [u8],
        text: &'a [u8],
    },
    Resumed {
        name: &'a [u8],
        text: &'a [u8],
    },
    Signal,
    Ended,
    /// A call whose process strace stops following.
    Detached,
    /// Thread `thread` has called execve and goes on with the id of its process.
    Superseded {
        thread: u64,
    },
}

/// The arguments and the result of a call.
pub(super) struct Done<'a> {
    /// Trimmed; empty if the call has fewer.
    pub(super) arguments: [&'a [u8]; ARGUMENTS_MAX],
    /// `None` if the call failed or did not return.
    pub(super) returned: Option<u64>,
    /// Whether a signal ended the call, which may be restarted.
    pub(super) is_interrupted: bool,
    /// The annotation of `-y` for the returned descriptor.
    pub(super) annotation: Option<&'a [u8]>,
    pub(super) took_ns: Option<u64>,
}

/// A descriptor as an argument.
pub(super) struct Descriptor<'a> {
    /// `None` is `AT_FDCWD`.
    pub(super) number: Option<u32>,
    pub(super) annotation: Option<&'a [u8]>,
}

/// Parses a line; `None` if it is none of strace's calls or events.
pub(super) fn parse(text: &[u8]) -> Option<Line<'_>> {
    let (pid, text) = after_pid(text);
    let (time_ns, text) = after_time(text)?;
    Some(Line { pid, time_ns, event: event(text)? })
}

/// Whether `text` is a line that strace writes between calls.
pub(super) fn is_between(text: &[u8]) -> bool {
    BETWEEN.iter().any(|start| text.starts_with(start))
}

/// Whether `text`, the last line, is certainly complete: it ends with a duration, the name of a descriptor or a
/// mark.
pub(super) fn is_whole(text: &[u8]) -> bool {
    [&b">"[..], b" ---", b" +++"].iter().any(|end| text.ends_with(end))
}

/// Which word of `text`, a line of the process `pid`, is the time; the first is 1.
pub(super) fn time_column(text: &[u8], pid: Option<u64>) -> u8 {
    1 + u8::from(pid.is_some()) + u8::from(text.starts_with(b"[pid "))
}

/// Splits off the process: `1234 `, `[pid  1234] ` or nothing, also with `-Y`'s program name: `1234<sh> `.
fn after_pid(text: &[u8]) -> (Option<u64>, &[u8]) {
    let bracketed = text.strip_prefix(b"[pid");
    let inner = bracketed.unwrap_or(text).trim_ascii_start();
    let (digits, rest) = split_digits(inner);
    let rest = match rest.strip_prefix(b"<") {
        Some(comm) => find(comm, b">").map_or(rest, |end| &comm[end + 1..]),
        None => rest,
    };
    let rest = if bracketed.is_some() { rest.strip_prefix(b"]") } else { Some(rest) };
    match (decimal(digits), rest) {
        (Some(pid), Some(rest)) if rest.starts_with(b" ") => (Some(pid), rest.trim_ascii_start()),
        _ => (None, text),
    }
}

/// Splits off the time, and what `-r`, `-i` and `-n` add after it. `None` if the line ends there.
fn after_time(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let is_clock = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b':');
    let end = text.iter().position(|byte| !is_clock(byte))?;
    let time_ns = nanoseconds(&text[..end]);
    let mut rest = text[end..].trim_ascii_start();
    while let [open @ (b'[' | b'('), ..] = rest {
        let close: &[u8] = if *open == b'[' { b"]" } else { b")" };
        rest = rest[find(rest, close)? + 1..].trim_ascii_start();
    }
    Some((time_ns, rest))
}

fn event(text: &[u8]) -> Option<Event<'_>> {
    if text.starts_with(b"--- ") {
        return Some(Event::Signal);
    }
    if let Some(end) = text.strip_prefix(b"+++ ") {
        let thread = end.strip_prefix(b"superseded by execve in pid ");
        let thread = thread.and_then(|thread| decimal(split_digits(thread).0));
        return Some(thread.map_or(Event::Ended, |thread| Event::Superseded { thread }));
    }
    if text.ends_with(DETACHED) {
        return Some(Event::Detached);
    }
    if let Some(resumed) = text.strip_prefix(b"<... ") {
        let (name, rest) = split_name(resumed)?;
        let text = without_number(rest.strip_prefix(b" resumed")?).strip_prefix(b">")?;
        return Some(Event::Resumed { name, text });
    }
    let (name, rest) = split_name(text)?;
    let text = rest.strip_prefix(b"(")?;
    // A thread that replaces its process in execve; the event `Superseded` follows.
    let changed = || text.ends_with(b" ...>").then(|| find(text, b" <pid changed to "))?;
    if let Some(text) = unfinished(text).or_else(|| changed().map(|end| &text[..end])) {
        // Trimmed, since an annotation must end directly before the bracket to come.
        return Some(Event::Begun { name, text: text.trim_ascii_end() });
    }
    Some(Event::Whole { name, done: done(text)?, text })
}

/// The text before the mark of an interrupted call, if the line ends with one.
fn unfinished(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_suffix(b"...>")?;
    let (digits, before) = (text.trim_ascii_end(), |at: usize| text[..at].strip_suffix(UNFINISHED));
    before(text.len()).or_else(|| before(digits.iter().rposition(|&byte| byte == b'#')?))
}

/// `text` without a leading ` #12`.
fn without_number(text: &[u8]) -> &[u8] {
    text.strip_prefix(b" #").map_or(text, |rest| split_digits(rest).1)
}

/// Parses the arguments and the result after a call's opening bracket; `None` if the line is cut off or its
/// duration is malformed.
pub(super) fn done(text: &[u8]) -> Option<Done<'_>> {
    let (arguments, end) = arguments(text)?;
    let result = text[end + 1..].trim_ascii().strip_prefix(b"=")?.trim_ascii();
    let marked = result.strip_suffix(b">").and_then(|inner| {
        let start = inner.iter().rposition(|byte| *byte == b'<')?;
        result[..start].ends_with(b" ").then(|| (result[..start].trim_ascii(), &inner[start + 1..]))
    });
    let (result, took_ns) = match marked.map(|(result, mark)| (result, duration(mark))) {
        Some((result, Some(took_ns))) => (result, Some(took_ns)),
        // A name that contains ` <` has the same ending.
        Some((_, None))
            if annotation(split_digits(result).1).is_none() && !result.ends_with(UNAVAILABLE) =>
        {
            return None;
        }
        _ => (result, None),
    };
    let (digits, rest) = split_digits(result);
    let returned = decimal(digits);
    let is_interrupted = result.starts_with(b"? ERESTART") || result.starts_with(b"-1 EINTR");
    Some(Done { arguments, returned, is_interrupted, annotation: annotation(rest), took_ns })
}

/// The first arguments, and the position of the closing bracket.
fn arguments(text: &[u8]) -> Option<([&[u8]; ARGUMENTS_MAX], usize)> {
    let mut arguments: [&[u8]; ARGUMENTS_MAX] = [&[]; ARGUMENTS_MAX];
    let (mut count, mut start, mut depth, mut at) = (0, 0, 0_u32, 0);
    // Not searched again after one failure, so that the time stays linear.
    let (mut has_annotations, mut has_comments) = (true, true);
    while at < text.len() {
        match text[at] {
            b'"' => {
                at = string_end(text, at + 1)?;
                continue;
            }
            b'<' if has_annotations && begins_annotation(text, at) => {
                match annotation_end(text, at + 1) {
                    Some(end) => at = end,
                    None => has_annotations = false,
                }
            }
            b'/' if has_comments && text[at + 1..].starts_with(b"*") => {
                match find(&text[at..], b"*/") {
                    Some(length) => at += length + 1,
                    None => has_comments = false,
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth > 0 => depth -= 1,
            byte @ (b',' | b')') if depth == 0 => {
                if let Some(argument) = arguments.get_mut(count) {
                    *argument = text[start..at].trim_ascii();
                }
                (count, start) = (count + 1, at + 1);
                if byte == b')' {
                    return Some((arguments, at));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The position after the quotation mark that ends the string whose content begins at `at`.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether the `<` at `at` follows a descriptor: `3</a>`, `AT_FDCWD</a>`, but not `1<<20`.
fn begins_annotation(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    let is_behind = before.last().is_some_and(u8::is_ascii_digit) || before.ends_with(b"AT_FDCWD");
    is_behind && matches!(text.get(at + 1), Some(b'/' | b'\\' | b'a'..=b'z' | b'A'..=b'Z'))
}

/// The position of the `>` that ends an annotation. A `>` within a name is not followed by the end of an
/// argument.
fn annotation_end(text: &[u8], from: usize) -> Option<usize> {
    (from..text.len()).filter(|at| text[*at] == b'>').find(|at| {
        let rest = &text[at + 1..];
        let rest = rest.strip_prefix(DELETED).unwrap_or(rest);
        matches!(rest.first(), Some(b',' | b')' | b']' | b'}'))
    })
}

/// The content of `<…>`.
fn annotation(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_suffix(DELETED).unwrap_or(text);
    text.strip_prefix(b"<")?.strip_suffix(b">")
}

/// Parses an argument that is a descriptor.
pub(super) fn descriptor(argument: &[u8]) -> Option<Descriptor<'_>> {
    if let Some(rest) = argument.strip_prefix(b"AT_FDCWD") {
        return Some(Descriptor { number: None, annotation: annotation(rest) });
    }
    let (digits, rest) = split_digits(argument);
    let number = u32::try_from(decimal(digits)?).ok()?;
    Some(Descriptor { number: Some(number), annotation: annotation(rest) })
}

/// The name in an argument, still escaped; `None` if it is empty, shortened or no string.
pub(super) fn name(argument: &[u8]) -> Option<&[u8]> {
    let name = argument.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!name.is_empty()).then_some(name)
}

/// The number in `[4096]` or the first in `[0] => [4096]`.
pub(super) fn pointed_to(argument: &[u8]) -> Option<u64> {
    decimal(split_digits(argument.strip_prefix(b"[")?).0)
}

/// Parses a number of digits only.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

/// The duration of a call: seconds, with or without a decimal point.
fn duration(text: &[u8]) -> Option<u64> {
    let whole = || decimal(text)?.checked_mul(1_000_000_000);
    nanoseconds(text).or_else(whole).filter(|took_ns| *took_ns <= TOOK_NS_MAX)
}

/// Seconds with a decimal point and up to nine digits after it.
fn nanoseconds(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|byte| *byte == b'.')?;
    let (whole, fraction) = (decimal(&text[..point])?, &text[point + 1..]);
    let unit = 10_u64.pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    whole.checked_mul(1_000_000_000)?.checked_add(decimal(fraction)? * unit)
}

/// `text` with strace's escapes resolved.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, radix, skipped) = match tail {
            [b'x', hex @ ..] => (run(hex, 2, u8::is_ascii_hexdigit), 16, 1),
            _ => (run(tail, 3, |byte| matches!(byte, b'0'..=b'7')), 8, 0),
        };
        let number = std::str::from_utf8(digits).ok();
        if let Some(byte) = number.and_then(|number| u32::from_str_radix(number, radix).ok()) {
            bytes.push(byte as u8); // strace writes no escape above `\377`
            rest = &tail[skipped + digits.len()..];
        } else if let [letter, behind @ ..] = tail {
            bytes.push(match letter {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 0x0b,
                b'f' => 0x0c,
                other => *other,
            });
            rest = behind;
        }
    }
    bytes
}

fn run(text: &[u8], most: usize, is_of: impl Fn(&u8) -> bool) -> &[u8] {
    let length = text.iter().take(most).take_while(|byte| is_of(byte)).count();
    &text[..length]
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

fn split_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_of = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let length = text.iter().take_while(is_of).count();
    (length > 0).then(|| text.split_at(length))
}

/// The number after the first occurrence of `name`.
pub(super) fn number_behind(text: &[u8], name: &[u8]) -> Option<u64> {
    let start = find(text, name)? + name.len();
    decimal(split_digits(&text[start..]).0)
}

/// Where `wanted` first occurs.
pub(super) fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
