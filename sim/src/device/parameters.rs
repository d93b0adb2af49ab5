//! Devices from parameter files: eight are built in, and users can write their own TOML files.
//!
//! docs/internals/simulator.md lists the keys; the files in `disks/` give the source of each value. An unknown
//! key, a missing key or an impossible value is an error of one line that names the key.

use foretell_policy::Nanos;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::Device;
use super::disk::{Disk, DiskSpec, Reading};
use super::flat::{Flat, FlatSpec, Latency};
use super::geometry::Geometry;
use super::seek::SeekCurve;
use crate::SECTOR_BYTES;

/// The built-in parameter files, by name.
const BUILT_IN: [(&str, &str); 8] = [
    ("hp97560", include_str!("../../disks/hp97560.toml")),
    ("hp97560-stored", include_str!("../../disks/hp97560-stored.toml")),
    ("ibm0661", include_str!("../../disks/ibm0661.toml")),
    ("hpc2247", include_str!("../../disks/hpc2247.toml")),
    ("network", include_str!("../../disks/network.toml")),
    ("object-store", include_str!("../../disks/object-store.toml")),
    ("ssd", include_str!("../../disks/ssd.toml")),
    ("nvme", include_str!("../../disks/nvme.toml")),
];

/// Why a parameter file does not describe a device.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ParameterError {
    /// No built-in file has this name.
    #[error(
        "unknown disk {name:?}; known are {}, and files of parameters (NAME.toml)",
        DiskParameters::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// Not TOML, or a key is missing, unknown or of the wrong type.
    #[error("disk parameters: {message}")]
    Syntax {
        /// The parser's message, on one line.
        message: String,
    },
    /// A value that no device can have.
    #[error("disk parameters: {key} = {} is absurd; it must be {wanted}", short(*value))]
    Value {
        /// The key, with its table.
        key: &'static str,
        /// The value given.
        value: f64,
        /// The permitted range.
        wanted: &'static str,
    },
}

/// A number in readable form, without hundreds of digits.
fn short(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-6..1e12).contains(&value.abs()) || !value.is_finite();
    if is_plain { value.to_string() } else { format!("{value:e}") }
}

/// The parameters of a device, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskParameters {
    /// A mechanical disk.
    Mechanical(DiskSpec),
    /// A device of latency and bandwidth.
    Flat(FlatSpec),
}

impl DiskParameters {
    /// The names of the built-in devices.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a parameter file's text.
    pub fn from_toml(text: &str) -> Result<Self, ParameterError> {
        // Parsed a second time as the specific model: errors of an untagged union would not know the line.
        match read::<AnyFile>(text)?.model {
            Model::Mechanical => {
                read::<MechanicalFile>(text)?.check().map(DiskParameters::Mechanical)
            }
            Model::Flat => read::<FlatFile>(text)?.check().map(DiskParameters::Flat),
        }
    }

    /// A built-in device; [`names`](Self::names) lists them.
    pub fn by_name(name: &str) -> Result<Self, ParameterError> {
        let (_, text) = BUILT_IN
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ParameterError::Unknown { name: name.to_owned() })?;
        Self::from_toml(text)
    }

    /// The HP 97560, the project's standard disk.
    pub fn hp97560() -> Self {
        Self::by_name("hp97560").expect("invariant: the built-in files are checked by a test")
    }

    /// The same disk as the simulator of the collective paper models it ([`Reading::Stored`]).
    pub fn hp97560_stored() -> Self {
        Self::by_name("hp97560-stored").expect("invariant: as above")
    }

    /// Makes a device with these parameters; `seed` matters only if the device draws latencies.
    pub fn device(&self, seed: u64) -> Box<dyn Device> {
        match self {
            DiskParameters::Mechanical(spec) => Box::new(Disk::new(spec.clone())),
            DiskParameters::Flat(spec) => Box::new(Flat::new(*spec, seed)),
        }
    }

    /// The capacity in sectors.
    pub fn capacity_sectors(&self) -> u64 {
        match self {
            DiskParameters::Mechanical(spec) => spec.capacity_sectors,
            DiskParameters::Flat(spec) => spec.capacity_sectors,
        }
    }

    /// Roughly the longest time of one request for so many bytes, in ns. A drawn latency exceeds it about once
    /// in 10^9 requests.
    pub(crate) fn longest_request_ns(&self, bytes: u64) -> f64 {
        match self {
            DiskParameters::Mechanical(spec) => {
                let sectors = bytes.div_ceil(SECTOR_BYTES);
                let tracks = sectors / spec.geometry.sectors_per_track + 2;
                let cylinders =
                    spec.capacity_sectors / (spec.geometry.heads * spec.geometry.sectors_per_track);
                let of_track = spec.geometry.revolution.0 as f64 * 2.0 + spec.head_switch.0 as f64;
                spec.overhead.0 as f64
                    + spec.seek.time(cylinders).0 as f64
                    + tracks as f64 * of_track
                    + sectors as f64 * spec.bus_sector.0 as f64
            }
            DiskParameters::Flat(spec) => {
                let latency_ms = match spec.latency {
                    Latency::Constant { latency_ms } => latency_ms,
                    Latency::Uniform { max_ms, .. } => max_ms,
                    Latency::LogNormal { median_ms, sigma } => median_ms * (6.0 * sigma).exp(),
                };
                latency_ms * 1e6 + bytes as f64 / spec.bandwidth_bytes_per_s * 1e9
            }
        }
    }

    /// Requests that the device serves at the same time.
    pub fn slots(&self) -> usize {
        match self {
            DiskParameters::Mechanical(_) => 1,
            DiskParameters::Flat(spec) => spec.slots,
        }
    }
}

/// Parses the file of a `T`; an error names the line and its key.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, ParameterError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        let message = message.replace("expected f64", "expected a number");
        let message = message.replace("expected u64", "expected a whole number");
        let place = error.span().map(|span| {
            let number = text[..span.start].matches('\n').count();
            let line = text.lines().nth(number).unwrap_or_default();
            let begin = line.split('=').next().unwrap_or_default().trim();
            let comma = if begin.is_empty() { "" } else { ", " };
            format!("line {}{comma}{begin}: ", number + 1)
        });
        ParameterError::Syntax { message: place.unwrap_or_default() + &message }
    })
}

#[derive(Deserialize)]
struct AnyFile {
    model: Model,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Model {
    Mechanical,
    Flat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MechanicalFile {
    #[serde(rename = "model")]
    _model: Model,
    geometry: GeometryTable,
    timing: TimingTable,
    seek: SeekCurve,
    cache: CacheTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeometryTable {
    cylinders: u64,
    usable_cylinders: Option<u64>,
    heads: u64,
    sectors_per_track: u64,
    track_skew_sectors: u64,
    cylinder_skew_sectors: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingTable {
    rpm: f64,
    head_switch_ms: f64,
    overhead_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheTable {
    size_kib: u64,
    read_ahead_kib: u64,
    bus_mb_per_s: f64,
    #[serde(default)]
    reading: Reading,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatFile {
    #[serde(rename = "model")]
    _model: Model,
    bandwidth_mb_per_s: f64,
    #[serde(default)]
    link_mb_per_s: Option<f64>,
    slots: u64,
    capacity_gib: u64,
    latency: Latency,
}

/// Longest time of any part of a request, in milliseconds.
const LONGEST_MS: f64 = 60_000.0;

fn check(
    key: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    wanted: &'static str,
) -> Result<(), ParameterError> {
    // NaN is in no range, and so is refused.
    if range.contains(&value) { Ok(()) } else { Err(ParameterError::Value { key, value, wanted }) }
}

fn check_ms(key: &'static str, value: f64) -> Result<(), ParameterError> {
    check(key, value, 0.0..=LONGEST_MS, "from 0 to 60000")
}

impl MechanicalFile {
    fn check(&self) -> Result<DiskSpec, ParameterError> {
        let shape = &self.geometry;
        check("geometry.cylinders", shape.cylinders as f64, 1.0..=1e7, "from 1 to 10000000")?;
        check("geometry.heads", shape.heads as f64, 1.0..=1000.0, "from 1 to 1000")?;
        let sectors = shape.sectors_per_track as f64;
        check("geometry.sectors_per_track", sectors, 1.0..=1e4, "from 1 to 10000")?;
        let usable = shape.usable_cylinders.unwrap_or(shape.cylinders);
        let wanted = "from 1 to geometry.cylinders";
        check("geometry.usable_cylinders", usable as f64, 1.0..=shape.cylinders as f64, wanted)?;
        let wanted = "less than geometry.sectors_per_track";
        let (track, cylinder) = (shape.track_skew_sectors, shape.cylinder_skew_sectors);
        check("geometry.track_skew_sectors", track as f64, 0.0..=sectors - 1.0, wanted)?;
        check("geometry.cylinder_skew_sectors", cylinder as f64, 0.0..=sectors - 1.0, wanted)?;
        check("timing.rpm", self.timing.rpm, 10.0..=1e6, "from 10 to 1000000")?;
        check_ms("timing.head_switch_ms", self.timing.head_switch_ms)?;
        check_ms("timing.overhead_ms", self.timing.overhead_ms)?;
        for (key, value) in self.seek.constants() {
            check_ms(key, value)?;
        }
        let longest_ms = self.seek.time(shape.cylinders).as_millis();
        check("seek over all cylinders", longest_ms, 0.0..=LONGEST_MS, "60000 ms at most")?;
        let cache = &self.cache;
        check("cache.size_kib", cache.size_kib as f64, 0.0..=1e6, "from 0 to 1000000")?;
        let wanted = "at most cache.size_kib";
        let ahead = cache.read_ahead_kib as f64;
        check("cache.read_ahead_kib", ahead, 0.0..=cache.size_kib as f64, wanted)?;
        check("cache.bus_mb_per_s", cache.bus_mb_per_s, 0.001..=1e6, "from 0.001 to 1000000")?;
        Ok(self.spec(usable))
    }

    fn spec(&self, usable_cylinders: u64) -> DiskSpec {
        let (shape, cache) = (&self.geometry, &self.cache);
        let sectors_per_kib = 1024 / SECTOR_BYTES;
        DiskSpec {
            geometry: Geometry {
                heads: shape.heads,
                sectors_per_track: shape.sectors_per_track,
                track_skew_sectors: shape.track_skew_sectors,
                cylinder_skew_sectors: shape.cylinder_skew_sectors,
                revolution: Nanos::from_secs(60.0 / self.timing.rpm),
            },
            capacity_sectors: usable_cylinders * shape.heads * shape.sectors_per_track,
            seek: self.seek,
            head_switch: Nanos::from_millis(self.timing.head_switch_ms),
            overhead: Nanos::from_millis(self.timing.overhead_ms),
            cache_sectors: cache.size_kib * sectors_per_kib,
            read_ahead_sectors: cache.read_ahead_kib * sectors_per_kib,
            bus_sector: Nanos::from_secs(SECTOR_BYTES as f64 / (cache.bus_mb_per_s * 1e6)),
            reading: cache.reading,
        }
    }
}

impl FlatFile {
    fn check(&self) -> Result<FlatSpec, ParameterError> {
        let bandwidth = self.bandwidth_mb_per_s;
        check("bandwidth_mb_per_s", bandwidth, 0.001..=1e6, "from 0.001 to 1000000")?;
        if let Some(link) = self.link_mb_per_s {
            check("link_mb_per_s", link, bandwidth..=1e6, "from bandwidth_mb_per_s to 1000000")?;
        }
        check("slots", self.slots as f64, 1.0..=65_536.0, "from 1 to 65536")?;
        check("capacity_gib", self.capacity_gib as f64, 1.0..=1e9, "from 1 to 1000000000")?;
        match self.latency {
            Latency::Constant { latency_ms } => check_ms("latency.latency_ms", latency_ms)?,
            Latency::Uniform { min_ms, max_ms } => {
                check_ms("latency.max_ms", max_ms)?;
                check("latency.min_ms", min_ms, 0.0..=max_ms, "from 0 to latency.max_ms")?;
            }
            Latency::LogNormal { median_ms, sigma } => {
                check_ms("latency.median_ms", median_ms)?;
                check("latency.sigma", sigma, 0.0..=3.0, "from 0 to 3")?;
            }
        }
        Ok(FlatSpec {
            latency: self.latency,
            bandwidth_bytes_per_s: bandwidth * 1e6,
            link_bytes_per_s: self.link_mb_per_s.map_or(f64::INFINITY, |link| link * 1e6),
            slots: self.slots as usize,
            capacity_sectors: self.capacity_gib * ((1 << 30) / SECTOR_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_is_sound() {
        for name in DiskParameters::names() {
            assert!(DiskParameters::by_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn errors_are_one_line_and_name_the_key() {
        let good = BUILT_IN[0].1;
        let table = [
            ("heads = 19", "heads = 0", "geometry.heads = 0 is absurd"),
            ("rpm = 4002.0", "rpm = nan", "timing.rpm = NaN is absurd"),
            ("rpm = 4002.0", "rpm = 1e300", "timing.rpm = 1e300 is absurd"),
            ("rpm = 4002.0", "rpm = 9.9", "timing.rpm = 9.9 is absurd"),
            ("sectors_per_track = 72", "sectors_per_track = 10001", "geometry.sectors_per_track"),
            ("head_switch_ms = 1.6", "head_switch_ms = -1.6", "timing.head_switch_ms = -1.6"),
            ("usable_cylinders = 1935", "usable_cylinders = 2000", "geometry.usable_cylinders"),
            ("near_sqrt_ms = 0.400", "near_sqrt_ms = inf", "seek.near_sqrt_ms = inf"),
            ("far_slope_ms = 0.008", "far_slope_ms = 60000.0", "seek over all cylinders = "),
            ("heads = 19", "head = 19", "head"),
            ("rpm = 4002.0", "", "[timing]: missing field `rpm`"),
            (
                "rpm = 4002.0",
                "rpm = \"fast\"",
                ", rpm: invalid type: string \"fast\", expected a number",
            ),
            ("heads = 19", "heads = 1.5", ", heads: invalid type: floating point `1.5`"),
            ("heads = 19", "heads = -1", "expected a whole number"),
            ("rpm = 4002.0", "rpms = 4002.0", ", rpms: unknown field `rpms`"),
            ("rpm = 4002.0", "rpm = = 1", "line"),
            ("model = \"mechanical\"", "model = \"drum\"", "drum"),
        ];
        for (key, replacement, expected) in table {
            let text = good.replacen(key, replacement, 1);
            assert_ne!(text, good, "{key} is not in the file");
            let error = DiskParameters::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = DiskParameters::by_name("floppy").unwrap_err().to_string();
        assert!(error.contains("floppy") && error.contains("hp97560"), "{error}");
    }

    #[test]
    fn the_examples_of_the_documentation_are_sound() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/simulator.md");
        let page = std::fs::read_to_string(page).expect("it is there");
        let examples = page.split("```toml\n").skip(1).filter_map(|text| text.split("```").next());
        let disks: Vec<DiskParameters> =
            examples.map(|text| DiskParameters::from_toml(text).expect("an example")).collect();
        let [DiskParameters::Mechanical(_), DiskParameters::Flat(_)] = disks[..] else {
            panic!("{disks:?}");
        };
    }

    #[test]
    fn a_built_in_disk_has_its_capacity() {
        let sectors = |name| DiskParameters::by_name(name).map(|disk| disk.capacity_sectors());
        assert_eq!(sectors("hp97560"), Ok(1935 * 19 * 72));
        assert_eq!(sectors("ibm0661"), Ok(949 * 14 * 48));
    }
}
