//! Encrypted records without sockets.

use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::frame::{FrameError, HEADER_BYTES};
use forebay_net::handshake::{ClientHandshake, ServerHandshake, Service, Step};
use forebay_net::record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RecordCipher, encrypted_length};

/// The client's sending cipher and the server's receiving cipher of a new session.
fn session() -> (RecordCipher, RecordCipher) {
    let key = Some(PoolKey::new(b"the key of this pool").unwrap());
    let auth = Authenticator { key, ..Authenticator::default() };
    let server = (Service::Storage, "127.0.0.1:7511".parse().unwrap());
    let (mut client, opening) = ClientHandshake::new(server, &auth).unwrap();
    let mut server = ServerHandshake::new(server.0, server.1);
    let Ok(Step::Answer(answer, (_, receive))) = server.receive(&auth, &opening[HEADER_BYTES..])
    else {
        panic!("the opening is answered");
    };
    let (send, _) = client.receive_answer(&answer[HEADER_BYTES..]).unwrap();
    (send, receive)
}

fn encrypted(cipher: &mut RecordCipher, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cipher.encrypt(plain, &mut out).unwrap();
    assert_eq!(out.len(), encrypted_length(plain.len()));
    out
}

#[test]
fn records_are_accepted_once_unchanged_and_in_order() {
    let (mut send, mut receive) = session();
    let first = encrypted(&mut send, b"first");
    let second = encrypted(&mut send, &[3; 3 * MAX_RECORD_BYTES + 1]);
    let mut plain = Vec::new();
    // In pieces, as they may arrive.
    assert_eq!(receive.decrypt(&first[..1], &mut plain), Ok(0));
    assert_eq!(receive.decrypt(&first[..9], &mut plain), Ok(0));
    assert_eq!(receive.decrypt(&first, &mut plain), Ok(first.len()));
    assert_eq!(plain, b"first");
    let refused = Err(FrameError::Authentication);
    assert_eq!(receive.decrypt(&first, &mut plain), refused, "repeated");
    let (mut send, mut receive) = session();
    let (first, other) = (encrypted(&mut send, b"first"), encrypted(&mut send, b"other"));
    assert_eq!(receive.decrypt(&other, &mut plain), refused, "the first is missing");
    for at in RECORD_HEADER_BYTES..first.len() {
        let mut changed = first.clone();
        changed[at] ^= 1;
        assert_eq!(receive.decrypt(&changed, &mut plain), refused, "byte {at}");
    }
    plain.clear();
    assert_eq!(receive.decrypt(&first, &mut plain), Ok(first.len()));
    assert_eq!(receive.decrypt(&other, &mut plain), Ok(other.len()));
    assert_eq!(plain, b"firstother");
    let (_, mut another) = session();
    assert_eq!(another.decrypt(&second, &mut plain), refused, "another session");
}

#[test]
fn record_of_impossible_length_is_refused() {
    let (_, mut receive) = session();
    let mut plain = Vec::new();
    for length in [0u16, 16, u16::MAX] {
        assert_eq!(receive.decrypt(&length.to_le_bytes(), &mut plain), Err(FrameError::Length));
    }
    assert_eq!(receive.decrypt(&[1], &mut plain), Ok(0));
}
