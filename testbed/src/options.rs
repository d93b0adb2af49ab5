//! The options of an array.

use std::fmt;
use std::str::FromStr;

use foretell_policy::queue::Order;
use foretell_sim::SECTOR_BYTES;
use foretell_sim::array::Striping;
use foretell_sim::collective::Placement;
use foretell_sim::device::DiskParameters;

use crate::error::ArrayError;

/// How files lie on the disks; see `foretell_sim::layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutKind {
    /// One file after another, as on a fresh file system.
    Sequential,
    /// In short runs all over the volume, as on an old file system.
    Aged,
}

impl LayoutKind {
    /// All layouts, in the order of help texts.
    pub const ALL: [LayoutKind; 2] = [LayoutKind::Sequential, LayoutKind::Aged];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            LayoutKind::Sequential => "sequential",
            LayoutKind::Aged => "aged",
        }
    }
}

impl fmt::Display for LayoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LayoutKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = |kind: &&LayoutKind| kind.name() == text;
        LayoutKind::ALL
            .iter()
            .find(wanted)
            .copied()
            .ok_or_else(|| format!("unknown layout {text:?}; known are sequential, aged"))
    }
}

/// How files lie that are striped each by itself, as parallel file systems do: block b of a file is on disk b mod D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Striped {
    /// How a file lies on each disk.
    pub places: Places,
    /// Bytes of a file that lie as a file of their own. `None`: all files do whole.
    pub portion_bytes: Option<u64>,
}

/// How a file lies on each disk; the machine of `foretell sim collective` has the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Places {
    /// One of `foretell sim collective --layout`.
    Laid(Placement),
    /// Sequential, each file at a random place: `--apart`.
    Apart,
}

impl Places {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Places::Laid(placement) => placement.name(),
            Places::Apart => "apart",
        }
    }

    /// The layout on each disk, and whether files lie apart.
    pub(crate) fn placement(self) -> (Placement, bool) {
        match self {
            Places::Laid(placement) => (placement, false),
            Places::Apart => (Placement::Sequential, true),
        }
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Places {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == Places::Apart.name() {
            return Ok(Places::Apart);
        }
        let laid = text.parse().map(Places::Laid);
        laid.map_err(|error: String| format!("{error}, apart"))
    }
}

/// The options of an array. [`ArrayOptions::default`] is the array of the prototypes in the papers.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayOptions {
    /// Number of disks, from 1 to 256.
    pub disks: usize,
    /// The model of each disk.
    pub disk: DiskParameters,
    /// Stripe unit: bytes of a file that lie on one disk before the next disk follows.
    pub stripe_bytes: u64,
    /// The order in which the striper sends waiting requests to a disk.
    pub order: Order,
    /// Requests that a disk holds at once, from 1 to 1024. It chooses among them by itself.
    pub outstanding: usize,
    /// Real seconds in one second of the array's clock: 0.25 makes disks four times as fast.
    pub time_scale: f64,
    /// How files lie on the disks.
    pub layout: LayoutKind,
    /// If set, each file is striped by itself. `layout` then places inodes alone.
    pub striped: Option<Striped>,
    /// Whether the first lookup of an inode costs a read.
    pub metadata: bool,
    /// Whether programs may write. What they write goes to the backing folder.
    pub writable: bool,
    /// Seed of all random choices: places of an aged layout, latencies of flat devices.
    pub seed: u64,
}

impl Default for ArrayOptions {
    fn default() -> Self {
        ArrayOptions {
            disks: 4,
            disk: DiskParameters::hp97560(),
            stripe_bytes: 64 << 10,
            order: Order::Scan,
            outstanding: 5,
            time_scale: 0.25,
            layout: LayoutKind::Sequential,
            striped: None,
            metadata: true,
            writable: false,
            seed: 0,
        }
    }
}

impl ArrayOptions {
    /// Returns the first option that has a value out of its range.
    pub fn validate(&self) -> Result<(), ArrayError> {
        let check = |good: bool, option, value: String, wanted| {
            if good { Ok(()) } else { Err(ArrayError::Option { option, value, wanted }) }
        };
        let disks = self.disks;
        check((1..=256).contains(&disks), "disks", disks.to_string(), "from 1 to 256")?;
        let stripe = self.stripe_bytes;
        check(
            stripe.is_multiple_of(SECTOR_BYTES) && (4096..=1 << 30).contains(&stripe),
            "stripe",
            stripe.to_string(),
            "a multiple of 512 bytes from 4KiB to 1GiB",
        )?;
        check(
            stripe / SECTOR_BYTES <= self.disk.capacity_sectors(),
            "stripe",
            stripe.to_string(),
            "no larger than a disk",
        )?;
        let outstanding = self.outstanding;
        let wanted = "from 1 to 1024";
        check((1..=1024).contains(&outstanding), "outstanding", outstanding.to_string(), wanted)?;
        let scale = self.time_scale;
        // NaN is in no range.
        let good = (1e-6..=100.0).contains(&scale);
        check(good, "time-scale", scale.to_string(), "from 0.000001 to 100")?;
        let Some(Striped { places, portion_bytes }) = self.striped else { return Ok(()) };
        let is_aged = places == Places::Laid(Placement::Aged);
        check(!is_aged || stripe == 8192, "stripe", stripe.to_string(), "8KiB with --places aged")?;
        let portion = portion_bytes.unwrap_or(stripe);
        let blocks = self.disk.capacity_sectors() / (stripe / SECTOR_BYTES);
        check(
            portion.is_multiple_of(stripe) && (1..=blocks).contains(&(portion / stripe)),
            "portion",
            portion.to_string(),
            "a multiple of the stripe unit, and no larger than a disk",
        )
    }

    pub(crate) fn striping(&self) -> Striping {
        Striping::new(self.disks, self.stripe_bytes / SECTOR_BYTES)
    }

    pub(crate) fn volume_sectors(&self) -> u64 {
        self.striping().volume_sectors(self.disk.capacity_sectors())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_options_are_refused_by_name() {
        type Change = fn(&mut ArrayOptions);
        fn striped(options: &mut ArrayOptions, portion_bytes: u64) {
            let places = Places::Laid(Placement::Random);
            options.striped = Some(Striped { places, portion_bytes: Some(portion_bytes) });
        }
        let table: [(&str, Change); 12] = [
            ("portion", |o| striped(o, 0)),
            ("portion", |o| striped(o, 65_537)),
            ("portion", |o| striped(o, 1 << 40)),
            ("stripe", |o| {
                let places = Places::Laid(Placement::Aged);
                o.striped = Some(Striped { places, portion_bytes: None });
            }),
            ("disks", |o| o.disks = 0),
            ("disks", |o| o.disks = 257),
            ("stripe", |o| o.stripe_bytes = 4097),
            ("stripe", |o| o.stripe_bytes = 512),
            ("outstanding", |o| o.outstanding = 0),
            ("time-scale", |o| o.time_scale = 0.0),
            ("time-scale", |o| o.time_scale = f64::NAN),
            ("time-scale", |o| o.time_scale = 101.0),
        ];
        assert!(ArrayOptions::default().validate().is_ok());
        for (name, change) in table {
            let mut options = ArrayOptions::default();
            change(&mut options);
            let error = options.validate().expect_err(name).to_string();
            assert!(error.contains(name) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn layout_names_read_back() {
        for kind in LayoutKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("random".parse::<LayoutKind>().is_err());
        for places in Placement::ALL.map(Places::Laid).into_iter().chain([Places::Apart]) {
            assert_eq!(places.name().parse(), Ok(places));
        }
        let error = "scattered".parse::<Places>().expect_err("there is none");
        assert!(error.ends_with("aged, apart"), "{error}");
    }
}
