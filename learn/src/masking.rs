//! Command lines without their secrets, for names of workloads and for recordings.
//!
//! What is masked, as [`MASK`], wherever in the line it stands, in words of `sh -c` too:
//!
//! * A. the value of a name that looks secret: `--password=X`, `TOKEN=X`, `Authorization: X`, `"secret": "X"`, `?api_key=X`;
//! * B. what follows such an option: `--token X`, and the password in `-u USER:PASSWORD`;
//! * C. a long random text behind a word of that kind: `Bearer X`, `token X`;
//! * D. user and password in an address: `https://USER:PASSWORD@host`;
//! * E. for names of workloads, names of files that are never learned ([`Private`]).
//!
//! A name looks secret if it matches `NAMES`, or one of the [`SECRETS`] that fit anywhere in a name (`*password*`).
//!
//! Nothing tells a secret for sure: one in a place of its own, as in `login hunter2`, is not seen.
//!
//! Pure. Cost: some 50 ns a byte. Masking what is masked already changes nothing.

use std::borrow::Cow;

use crate::private::{Private, SECRETS, matches};

/// What stands for a secret.
pub const MASK: &str = "…";

/// Patterns of secret names beside [`SECRETS`], in small letters and without dashes at their beginning.
const NAMES: &[&str] = &[
    "*passwd",
    "*passphrase",
    "pass",
    "*[-_]pass",
    "pwd",
    "*[-_]pwd",
    "*token",
    "bearer",
    "*auth",
    "*authorization",
    "*api[-_]key",
    "*apikey",
    "*access[-_]key",
    "*private[-_]key",
    "*cookie",
    "sig",
    "*signature",
];

/// Names that match [`NAMES`] or [`SECRETS`] but have harmless values.
const HARMLESS: &[&str] = &["*[-_]file", "*[-_]stdin", "*[-_]command", "*[-_]path", "no-*"];

/// Options with a value of the form `USER:PASSWORD`. The password may be missing.
const USER_OPTIONS: &[&str] = &["-u", "--user", "--proxy-user"];

/// Words that may stand between the name and the secret: schemes of HTTP.
const SCHEMES: &[&str] = &["bearer", "basic", "digest", "token", "negotiate"];

/// A random text has so many characters, and so many bits for each.
const RANDOM_MIN: usize = 16;
const RANDOM_BITS: f64 = 3.0;

/// What the next words of the line may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Anything,
    /// The value of a secret option.
    Secret,
    /// A secret if it is random.
    MaybeRandom,
    /// A user, and perhaps a password.
    User,
}

/// The words of a command line without secrets, and, if `private` is given, without names that are never learned.
pub fn words<'a>(
    words: impl Iterator<Item = Cow<'a, str>>,
    private: Option<&Private>,
) -> Vec<String> {
    let mut masker = Masker { next: Next::Anything, private };
    words.map(|word| masker.word(&word)).collect()
}

/// A line of text that is no single word, without secrets and private names.
pub fn line(text: &str) -> String {
    let private = Private::new(std::iter::empty());
    let mut masker = Masker { next: Next::Anything, private: Some(&private) };
    masker.pieces(&addresses(&assignments(text, false)))
}

struct Masker<'a> {
    next: Next,
    private: Option<&'a Private>,
}

impl Masker<'_> {
    fn word(&mut self, word: &str) -> String {
        if self.next == Next::Secret && !word.starts_with('-') && !is_scheme(word) {
            self.next = Next::Anything;
            return MASK.to_owned(); // With the spaces in it.
        }
        self.pieces(&addresses(&assignments(word, true)))
    }

    /// What stands between spaces, each with what stands before it in mind.
    fn pieces(&mut self, text: &str) -> String {
        let (mut masked, mut quote) = (String::with_capacity(text.len()), None);
        for part in text.split_inclusive(char::is_whitespace) {
            let piece = part.trim_end();
            let space = &part[piece.len()..];
            // The rest of a quoted secret.
            if let Some(mark) = quote {
                quote = quote.filter(|_| !piece.ends_with(mark));
                continue;
            }
            if !piece.is_empty() {
                let before = self.next;
                let shown = self.piece(piece);
                let mark = piece.chars().next().filter(|mark| matches!(mark, '"' | '\''));
                let is_open = |mark: &char| piece.len() == 1 || !piece.ends_with(*mark);
                quote =
                    mark.filter(|mark| before == Next::Secret && shown == MASK && is_open(mark));
                masked.push_str(&shown);
            }
            masked.push_str(space);
        }
        masked
    }

    fn piece(&mut self, piece: &str) -> String {
        let bare = piece.trim_matches(['"', '\'']);
        let masked = || piece.replacen(bare, MASK, usize::from(!bare.is_empty()));
        let is_option = bare.starts_with('-');
        let next = std::mem::replace(&mut self.next, Next::Anything);
        let shown = match next {
            Next::Secret if is_scheme(bare) => {
                self.next = Next::Secret;
                return piece.to_owned();
            }
            Next::Secret if bare == MASK => return piece.to_owned(),
            Next::Secret if !is_option => return MASK.to_owned(),
            Next::MaybeRandom if is_random(bare) => return masked(),
            Next::User if bare.contains(':') && !bare.contains("://") => {
                let user = bare.split(':').next().unwrap_or_default();
                return format!("{user}:{MASK}");
            }
            _ => self.without_private(piece),
        };
        self.next = match () {
            () if USER_OPTIONS.contains(&bare) => Next::User,
            () if is_secret(bare.trim_end_matches([':', '='])) => {
                match is_option || bare.ends_with(':') {
                    true => Next::Secret,
                    false => Next::MaybeRandom,
                }
            }
            () => Next::Anything,
        };
        shown
    }

    /// Case E.
    fn without_private(&self, piece: &str) -> String {
        let Some(private) = self.private.filter(|_| piece.contains(['/', '.'])) else {
            return piece.to_owned();
        };
        let value = piece.find('=').map_or(0, |at| at + 1);
        let mut from = value;
        for name in piece[value..].split('/') {
            let bare = name.trim_matches(['"', '\'', ',', ';', ')', '(']);
            if private.has_name(bare.as_bytes()) {
                return format!("{}{MASK}", &piece[..from]);
            }
            from += name.len() + 1;
        }
        piece.to_owned()
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

/// Whether a value of this name is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let has = |patterns: &[&str]| {
        patterns.iter().any(|pattern| match pattern.split_once("[-_]") {
            None => matches(pattern.as_bytes(), name.as_bytes()),
            Some((before, behind)) => ["-", "_"]
                .into_iter()
                .any(|joint| matches([before, joint, behind].concat().as_bytes(), name.as_bytes())),
        })
    };
    let anywhere = |pattern: &&&str| pattern.starts_with('*') && pattern.ends_with('*');
    let is_short = (1..=64).contains(&name.len()) && name.chars().all(is_of_name);
    let of_files = || SECRETS.iter().filter(anywhere).any(|pattern| has(&[pattern]));
    is_short && (has(NAMES) || of_files()) && !has(HARMLESS)
}

/// Whether a text looks as if it was drawn by lot.
fn is_random(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+/=.~".contains(&byte);
    if text.len() < RANDOM_MIN || !text.bytes().all(is_plain) {
        return false;
    }
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let share = |&count: &u32| f64::from(count) / text.len() as f64;
    let bits: f64 =
        counts.iter().filter(|count| **count > 0).map(share).map(|p| -p * p.log2()).sum();
    bits >= RANDOM_BITS && text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Case A. `is_word`: the text is one word, so a value at its beginning goes to its end.
fn assignments(text: &str, is_word: bool) -> String {
    let (mut masked, mut from) = (String::with_capacity(text.len()), 0);
    for (at, sign) in text.char_indices().filter(|(_, letter)| matches!(letter, '=' | ':')) {
        if at < from {
            continue; // Within what is masked.
        }
        let before = text[from..at].trim_end_matches(['"', '\'', '\\']);
        let begins = before
            .rfind(|letter: char| !is_of_name(letter))
            .map_or(0, |last| last + before[last..].chars().next().map_or(0, char::len_utf8));
        if !is_secret(&before[begins..]) {
            continue;
        }
        let behind = &text[at + 1..];
        let value = behind.trim_start_matches([' ', '\\']);
        let mark = value.chars().next().filter(|mark| matches!(mark, '"' | '\''));
        let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
        let begin = text.len() - value.len();
        let is_end = |letter: char| match (mark, sign) {
            (Some(mark), _) => letter == mark,
            (None, ':') => matches!(letter, '"' | '\'' | '\n' | ',' | '}'),
            (None, _) => {
                letter.is_whitespace() || matches!(letter, '"' | '\'' | '&' | ';' | ',' | '}' | ')')
            }
        };
        let length = match is_word && from + begins == 0 && mark.is_none() {
            true => value.len(),
            false => value.find(is_end).unwrap_or(value.len()),
        };
        if length == 0 {
            continue;
        }
        masked.push_str(&text[from..begin]);
        masked.push_str(MASK);
        from = begin + length;
    }
    masked.push_str(&text[from..]);
    masked
}

/// Case D.
fn addresses(text: &str) -> String {
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        masked.push_str(before);
        let is_end =
            |letter: char| letter.is_whitespace() || matches!(letter, '/' | '?' | '#' | '"' | '\'');
        let authority = &behind[..behind.find(is_end).unwrap_or(behind.len())];
        let user = authority.rfind('@').map(|at| &authority[..at]);
        let secret = user.filter(|user| user.contains(':') || is_random(user));
        secret.into_iter().for_each(|_| masked.push_str(MASK));
        rest = &behind[secret.map_or(0, str::len)..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(command: &[&str]) -> String {
        let private = Private::new(["*.draft", "patients"].into_iter());
        words(command.iter().map(|word| Cow::from(*word)), Some(&private)).join(" ")
    }

    #[test]
    fn secrets_are_masked() {
        for (command, is) in [
            (&["mysql", "--password=a b", "db"][..], "mysql --password=… db"),
            (&["x", "--token", "a b", "c"], "x --token … c"),
            (
                &["env", "DB_PASSWORD=x", "PGPASSFILE=/y", "run"],
                "env DB_PASSWORD=… PGPASSFILE=/y run",
            ),
            (&["curl", "-H", "Authorization: Bearer a.b", "u"], "curl -H Authorization: … u"),
            (&["curl", "-H", "X-Api-Key:abc", "u"], "curl -H X-Api-Key:… u"),
            (&["curl", "-u", "me:pw", "u"], "curl -u me:… u"),
            (&["curl", "https://me:p@ss@host/a?token=x&b=1"], "curl https://…@host/a?token=…&b=1"),
            (&["git", "clone", "ssh://git@host/x"], "git clone ssh://git@host/x"),
            (
                &["curl", "-d", r#"{"password": "x y", "b": 1}"#],
                r#"curl -d {"password": "…", "b": 1}"#,
            ),
            (
                &["sh", "-c", "curl --token abc -H 'Authorization: Basic x' u"],
                "sh -c curl --token … -H 'Authorization: …' u",
            ),
            (
                &["sh", "-c", "A=1 API_KEY=x go --secret \"a b\" c"],
                "sh -c A=1 API_KEY=… go --secret … c",
            ),
            (&["gh", "bearer", "ghp_0aB3dE6gH9jK2mN5pQ8s"], "gh bearer …"),
            (&["gh", "--auth", "token", "x"], "gh --auth token …"),
            (&["cat", "/home/a/.ssh/id_rsa", "b"], "cat /home/a/… b"),
            (&["cat", "-k=/x/a.pem", "patients/b.txt", "x.draft"], "cat -k=/x/… … …"),
        ] {
            assert_eq!(of(command), is, "{command:?}");
        }
    }

    #[test]
    fn other_words_stay() {
        for line in [
            "python3 train.py --tokenizer gpt2 --max-tokens 100 --seed=1",
            "grep -rn password /usr/include",
            "grep token README.md",
            "cc -c a.c -DX=1:2 -o /x:/y",
            "docker login --password-stdin registry",
            "cat /proc/cpuinfo /dev/null /etc/passwd",
            "make CC=gcc all",
            "curl http://host:80/a@b",
        ] {
            assert_eq!(of(&line.split(' ').collect::<Vec<_>>()), line);
            assert_eq!(super::line(line), line);
        }
    }

    #[test]
    fn a_line_is_masked_as_its_words_are() {
        let is = "curl --token … -H Authorization: …";
        assert_eq!(line("curl --token abc -H Authorization: Bearer abc u"), is);
        assert_eq!(line("mysql --password=a --host=b"), "mysql --password=… --host=b");
    }

    proptest! {
        #[test]
        fn any_text_is_masked_and_stays_so(text in r#"[a-z=: "'/@.\-…é]{0,30}|(--token|--password=|x: |https://a:|"|'| |é|secret=){0,12}"#) {
            let once = line(&text);
            prop_assert_eq!(&line(&once), &once);
            let _ = words(text.split(' ').map(Cow::from), None);
        }
    }
}
