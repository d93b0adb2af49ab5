//! Paths that are never learned.
//!
//! * Views of the kernel's own data, and what does not outlive the machine: `/proc`, `/sys`, `/dev`, `/run`.
//! * Names that look like secrets ([`SECRETS`]), and those that match a pattern of the user.
//! * Temporary folders: the caller says which, since another file system may be mounted below one.

/// Patterns of names and folders that hold secrets. A pattern is compared with each name of a path; `*` stands for anything.
pub const SECRETS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".pgpass",
    ".env",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    "*.pem",
    "*.key",
    "*.kdbx",
    "*.p12",
    "*.pfx",
    "*.keytab",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "shadow",
    "gshadow",
    "*credential*",
    "*secret*",
    "*password*",
    "keyrings",
    "Login Data",
    "logins.json",
    "key?.db",
    "cookies.sqlite",
    "Cookies",
];

const VIEWS: &[&[u8]] = &[b"/proc", b"/sys", b"/dev", b"/run"];

/// Which paths are kept out.
#[derive(Clone, Debug)]
pub struct Private {
    patterns: Vec<Vec<u8>>,
}

impl Private {
    /// With these patterns of the user beside [`SECRETS`]. Empty lines and those that begin with `#` are left out.
    pub fn new<'a>(more: impl Iterator<Item = &'a str>) -> Self {
        let own = SECRETS.iter().copied();
        let more = more.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Private { patterns: own.chain(more).map(|pattern| pattern.as_bytes().to_vec()).collect() }
    }

    /// Whether this absolute path is never learned.
    pub fn has(&self, path: &[u8]) -> bool {
        let is_below = |view: &&[u8]| {
            path.strip_prefix(*view).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        VIEWS.iter().any(is_below) || names.any(|name| self.has_name(name))
    }

    /// Whether what has this name, and what lies in it, is never learned.
    pub fn has_name(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether `name` matches the pattern, in which `*` stands for anything and `?` for one byte.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[place] => {
                (at, place) = (at + 1, place + 1)
            }
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    (at, place) = (star_at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, is_it) in [
            ("*.pem", "a.pem", true),
            ("*.pem", "a.pem.txt", false),
            ("*a*b", "xaxab", true),
            ("*a*b", "xaxa", false),
            ("key?.db", "key4.db", true),
            ("key?.db", "key.db", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_it, "{pattern} {name}");
        }
    }

    #[test]
    fn secrets_and_views_are_kept_out() {
        let private = Private::new(["# of the user", "", "*.draft"].into_iter());
        for path in [
            "/home/a/.ssh/config",
            "/etc/shadow",
            "/proc/1/maps",
            "/x/my-password.txt",
            "/x/a.draft",
            "/sys",
        ] {
            assert!(private.has(path.as_bytes()), "{path}");
        }
        for path in
            ["/usr/lib/python3/tokenize.py", "/system/a", "/devel/x", "/etc/passwd", "/x/draft"]
        {
            assert!(!private.has(path.as_bytes()), "{path}");
        }
    }
}
