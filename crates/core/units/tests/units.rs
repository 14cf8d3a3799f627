//! Text to units and back, exactly.

use forebay_units::{Bytes, Rate, Time};
use proptest::prelude::*;
use std::str::FromStr;

#[test]
fn sizes_parse_with_decimal_and_binary_prefixes() {
    for (text, bytes) in [
        ("0 B", 0),
        ("512 KiB", 524_288),
        ("4KiB", 4_096),
        ("4 kB", 4_000),
        ("1.5 MiB", 1_572_864),
        ("1.50000 MB", 1_500_000),
        ("  3.2 TB ", 3_200_000_000_000),
        ("0.0009765625 KiB", 1),
        ("16383 PiB", 16_383 << 50),
        ("18446744073709551615 B", u64::MAX),
        ("00000000000000000000000018 GB", 18_000_000_000),
    ] {
        assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
    }
}

#[test]
fn rates_parse_in_bytes_and_bits() {
    for (text, rate) in [
        ("18.75 GB/s", 18_750_000_000),
        ("4.6875 GB/s", 4_687_500_000),
        ("1 GiB/s", 1 << 30),
        ("200 Gbit/s", 25_000_000_000),
        ("12.5Gbit/s", 1_562_500_000),
        ("0 B/s", 0),
    ] {
        assert_eq!(text.parse(), Ok(Rate(rate)), "{text}");
    }
}

#[test]
fn times_parse_with_all_prefixes() {
    for (text, time) in [
        ("100 ns", 100_000),
        ("1.5 us", 1_500_000),
        ("20 \u{b5}s", 20_000_000),
        ("20\u{3bc}s", 20_000_000),
        ("0.001 ns", 1),
        ("2 ms", 2_000_000_000),
        ("1 s", 1_000_000_000_000),
    ] {
        assert_eq!(text.parse(), Ok(Time(time)), "{text}");
    }
}

/// Error and offset of a text that is not a quantity.
fn wrong<Q>(text: &str) -> (usize, String)
where
    Q: FromStr<Err = forebay_units::UnitError> + std::fmt::Debug,
{
    let error = text.parse::<Q>().expect_err(text);
    (error.offset, error.to_string())
}

#[test]
fn errors_name_the_expected_input() {
    const EXAMPLE: &str = "a size as `512 KiB` or `4 TB`";
    const UNITS: &str = "B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB";
    let cases = [
        ("", 0, format!("empty size; expected {EXAMPLE}")),
        ("  ", 0, format!("empty size; expected {EXAMPLE}")),
        ("12", 2, format!("`12` has no unit; expected {EXAMPLE} (one of {UNITS})")),
        ("-1 B", 0, format!("negative size `-1 B`; expected {EXAMPLE}, zero or more")),
        ("KiB", 0, format!("`KiB` does not start with a number; expected {EXAMPLE}")),
        (".5 KiB", 0, format!("`.5 KiB` does not start with a number; expected {EXAMPLE}")),
        (
            " 1.2.3 KiB",
            1,
            "`1.2.3` is not a decimal number; expected digits, with at most one decimal point \
             between digits, as `18.75`"
                .to_owned(),
        ),
        (
            "5. KiB",
            0,
            "`5.` is not a decimal number; expected digits, with at most one decimal point \
             between digits, as `18.75`"
                .to_owned(),
        ),
        (
            "4 KB",
            2,
            "unknown unit `KB` of a size; expected `kB` (1,000 bytes) or `KiB` (1,024 bytes)"
                .to_owned(),
        ),
        (
            "4 mib",
            2,
            "unknown unit `mib` of a size; expected `MB` (1,000,000 bytes) or `MiB` \
             (1,048,576 bytes)"
                .to_owned(),
        ),
        ("4 furlongs", 2, format!("unknown unit `furlongs` of a size; expected one of {UNITS}")),
        (
            "1,000 B",
            1,
            format!("`,000 B` after the number; expected plain digits and a unit: {EXAMPLE}"),
        ),
        (
            "1e3 B",
            1,
            format!("`e3 B` after the number; expected plain digits and a unit: {EXAMPLE}"),
        ),
        (
            "1.5 B",
            0,
            "`1.5 B` is not a whole number of bytes; expected a multiple of 1 byte".into(),
        ),
        (
            "16384 PiB",
            0,
            "size `16384 PiB` is too large; expected at most 18446744073709551615 bytes".into(),
        ),
        (
            "18446744073709551616 B",
            0,
            "size `18446744073709551616 B` is too large; expected at most \
             18446744073709551615 bytes"
                .into(),
        ),
        (
            "99999999999999999999999999999999999999999 B",
            0,
            "size `99999999999999999999999999999999999999999 B` is too large; expected at most \
             18446744073709551615 bytes"
                .into(),
        ),
        (
            "0.00000000000000000000000000000000000000001 TB",
            0,
            "`0.00000000000000000000000000000000000000001 TB` is not a whole number of bytes; \
             expected a multiple of 1 byte"
                .into(),
        ),
    ];
    for (text, offset, message) in cases {
        assert_eq!(wrong::<Bytes>(text), (offset, message), "{text}");
    }
}

#[test]
fn sizes_rates_and_times_refuse_each_others_units() {
    assert_eq!(
        wrong::<Rate>("8 Gb/s").1,
        "unknown unit `Gb/s` of a rate; expected `GB/s` (1,000,000,000 bytes a second) or \
         `GiB/s` (1,073,741,824 bytes a second) or `Gbit/s` (1,000,000,000 bits a second)"
    );
    assert!(wrong::<Rate>("8 GB").1.contains("`GB/s`"));
    assert!(wrong::<Rate>("1 Gbps").1.contains("`Gbit/s`"));
    assert_eq!(
        wrong::<Rate>("0.001 kbit/s").1,
        "`0.001 kbit/s` is not a whole number of bytes a second; expected a multiple of 1 byte \
         a second"
    );
    assert_eq!(
        wrong::<Time>("1.5 ps").1,
        "`1.5 ps` is not a whole number of picoseconds; expected a multiple of 1 picosecond"
    );
    assert_eq!(
        wrong::<Time>("100 fs").1,
        "unknown unit `fs` of a time; expected one of ps, ns, us, ms, s"
    );
    assert!(wrong::<Time>("18446745 s").1.contains("too large"));
}

#[test]
fn display_chooses_the_unit_with_the_fewest_digits() {
    for (bytes, text) in [
        (0, "0 B"),
        (1, "1 B"),
        (1_000, "1 kB"),
        (1_024, "1 KiB"),
        (1_536, "1.5 KiB"),
        (524_288, "512 KiB"),
        (4_000_000_000_000, "4 TB"),
        (128_000, "128 kB"),
        (123_456_789, "123.456789 MB"),
        (10_000_000_000_000_000_001, "10000000000000000001 B"),
    ] {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
    assert_eq!(Rate(18_750_000_000).to_string(), "18.75 GB/s");
    assert_eq!(Rate(100_704_000_000_000).to_string(), "100.704 TB/s");
    assert_eq!(Time(100_000).to_string(), "100 ns");
    assert_eq!(Time(1_500_000).to_string(), "1.5 us");
    assert_eq!(format!("[{:>8}]", Time::from_ns(10)), "[   10 ns]");
}

#[test]
fn time_for_rounds_up_and_never_overflows() {
    assert_eq!(Rate(8_000_000_000).time_for(Bytes::kib(4)), Time(512_000));
    assert_eq!(Rate(3).time_for(Bytes(1)), Time(333_333_333_334));
    assert_eq!(Rate(u64::MAX).time_for(Bytes(1)), Time(1));
    assert_eq!(Rate(1).time_for(Bytes(u64::MAX)), Time::MAX);
    assert_eq!(Rate(0).time_for(Bytes(0)), Time::ZERO);
    assert_eq!(Rate(0).time_for(Bytes(1)), Time::MAX);
    assert_eq!(Rate(8_000_000_000).bytes_in(Time(512_000)), Bytes::kib(4));
    assert_eq!(Rate(u64::MAX).bytes_in(Time::MAX), Bytes(u64::MAX));
}

proptest! {
    #[test]
    fn bytes_round_trip_through_text(n in any::<u64>()) {
        prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
    }

    #[test]
    fn rates_round_trip_through_text(n in any::<u64>()) {
        prop_assert_eq!(Rate(n).to_string().parse(), Ok(Rate(n)));
    }

    #[test]
    fn times_round_trip_through_text(n in any::<u64>()) {
        prop_assert_eq!(Time(n).to_string().parse(), Ok(Time(n)));
    }

    /// Round numbers with their own prefix, where shorter forms compete.
    #[test]
    fn round_sizes_round_trip_through_text(n in 1u64..2_000, shift in 0u32..50, decimal in any::<bool>()) {
        let unit = if decimal { 10u64.pow(shift / 4) } else { 1 << shift };
        let bytes = Bytes(n.saturating_mul(unit));
        prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
    }

    #[test]
    fn any_text_gives_a_size_or_an_error_offset_within_it(text in "\\PC{0,24}") {
        if let Err(error) = text.parse::<Bytes>() {
            prop_assert!(error.offset <= text.len());
        }
    }

    #[test]
    fn near_quantities_are_sizes_or_errors(
        text in "[0-9]{0,45}[.,]?[0-9]{0,45} ?(|B|kB|KB|MiB|PiB|PB|GB/s|\u{b5}s|bit)"
    ) {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Rate>();
        let _ = text.parse::<Time>();
    }

    #[test]
    fn time_for_moves_exactly_as_much(bytes in 1u64..1 << 40, rate in 1_000u64..1 << 40) {
        let time = Rate(rate).time_for(Bytes(bytes));
        prop_assert!(Rate(rate).bytes_in(time).0 >= bytes);
        prop_assert!(Rate(rate).bytes_in(Time(time.0 - 1)).0 < bytes);
    }
}
