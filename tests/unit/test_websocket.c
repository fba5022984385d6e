/* WebSocket: the frames, and the server's side of a connection, with clients that write their frames by hand. */
#include "gateway/websocket.h"
#include "http_fixture.h"

/* ---- frames of a client ---- */

static const unsigned char MASK[4] = {0x37, 0xfa, 0x21, 0x3d};

/* `first` is the first byte: 0x80 (the last of a message) and the opcode. */
static void add_frame(struct hc_buf *buf, unsigned first, const char *data, size_t length)
{
    unsigned char header[WS_HEADER_MAX];
    size_t size = ws_frame_header(header, (enum ws_opcode)(first & 0x0F), length);
    header[0] = (unsigned char)first;
    header[1] |= 0x80;
    hc_buf_add(buf, header, size);
    hc_buf_add(buf, MASK, 4);
    for (size_t i = 0; i < length; i++) {
        char byte = (char)(data[i] ^ MASK[i & 3]);
        hc_buf_add(buf, &byte, 1);
    }
}

static void add_text(struct hc_buf *buf, unsigned first, const char *text)
{
    add_frame(buf, first, text, strlen(text));
}

/* All events of some bytes as text: "T5:hello P0: C1000:". */
static char *events_of(const struct hc_buf *bytes, size_t message_max, size_t step)
{
    struct ws_frames frames;
    struct hc_buf text = HC_BUF_INIT(1 << 20);
    ws_frames_init(&frames, message_max);
    hc_buf_add_str(&text, "");
    bool over = false;
    for (size_t at = 0; at < bytes->length && !over;) {
        size_t length = bytes->length - at < step ? bytes->length - at : step, used;
        for (size_t taken = 0; !over;) {
            enum ws_event event = ws_frames_take(&frames, bytes->data + at + taken, length - taken, &used);
            taken += used;
            if (event == WS_EVENT_MORE)
                break;
            static const char letters[] = {[WS_EVENT_PING] = 'P', [WS_EVENT_PONG] = 'O'};
            if (event == WS_EVENT_MESSAGE)
                hc_buf_printf(&text, "%c%zu:%s ", frames.opcode == WS_TEXT ? 'T' : 'B', frames.length, frames.data);
            else if (event == WS_EVENT_CLOSE)
                hc_buf_printf(&text, "C%u:%s ", frames.code, frames.data);
            else if (event == WS_EVENT_ERROR)
                hc_buf_printf(&text, "E%u ", frames.code);
            else
                hc_buf_printf(&text, "%c%zu:%s ", letters[event], frames.length, frames.data);
            over = event == WS_EVENT_ERROR;
        }
        at += length;
    }
    ws_frames_release(&frames);
    return hc_buf_take(&text, NULL);
}

static void expect_events(struct hc_buf *bytes, const char *expected)
{
    static const size_t steps[] = {SIZE_MAX, 1, 3, 7};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        hc_cleanup_free char *text = events_of(bytes, 100000, steps[i]);
        assert_string_equal(text, expected);
    }
    hc_buf_reset(bytes);
}

static void test_messages_are_put_together(void **state)
{
    (void)state;
    struct hc_buf bytes = HC_BUF_INIT(1 << 20);
    add_text(&bytes, 0x81, "hello");
    add_text(&bytes, 0x82, "bytes");
    add_text(&bytes, 0x81, "");
    expect_events(&bytes, "T5:hello B5:bytes T0: ");
    add_text(&bytes, 0x01, "he");
    add_text(&bytes, 0x89, "are you there");
    add_text(&bytes, 0x00, "");
    add_text(&bytes, 0x8A, "");
    add_text(&bytes, 0x80, "llo");
    add_text(&bytes, 0x82, "x");
    expect_events(&bytes, "P13:are you there O0: T5:hello B1:x ");
    /* A character in two fragments is whole in the message. */
    add_text(&bytes, 0x01, "caf\xc3");
    add_text(&bytes, 0x80, "\xa9");
    expect_events(&bytes, "T5:caf\xc3\xa9 ");
    hc_buf_release(&bytes);
}

static void test_lengths_of_each_kind_are_read(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, 100000};
    hc_cleanup_free char *data = malloc(100000);
    assert_non_null(data);
    memset(data, 'y', 100000);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct hc_buf bytes = HC_BUF_INIT(1 << 20);
        add_frame(&bytes, 0x82, data, lengths[i]);
        hc_cleanup_free char *text = events_of(&bytes, 100000, SIZE_MAX);
        char start[32];
        snprintf(start, sizeof start, "B%zu:", lengths[i]);
        assert_memory_equal(text, start, strlen(start));
        assert_int_equal(strlen(text), strlen(start) + lengths[i] + 1);
        hc_buf_release(&bytes);
    }
}

static void test_a_close_ends_it(void **state)
{
    (void)state;
    struct hc_buf bytes = HC_BUF_INIT(1 << 20);
    add_frame(&bytes, 0x88, "\x03\xe8goodbye", 9);
    add_text(&bytes, 0x81, "never heard");
    expect_events(&bytes, "C1000:goodbye ");
    add_frame(&bytes, 0x88, "", 0);
    expect_events(&bytes, "C1005: ");
    add_frame(&bytes, 0x88, "\x03", 1);
    expect_events(&bytes, "E1002 ");
    static const struct {
        unsigned code;
        bool valid;
    } codes[] = {{999, false}, {1000, true},  {1003, true},   {1004, false}, {1005, false}, {1006, false},
                 {1007, true}, {1014, true},  {1015, false},  {1016, false}, {2999, false}, {3000, true},
                 {4999, true}, {5000, false}, {65535, false}, {0, false}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char payload[2] = {(char)(codes[i].code >> 8), (char)codes[i].code}, text[32];
        add_frame(&bytes, 0x88, payload, 2);
        snprintf(text, sizeof text, "C%u: ", codes[i].code);
        expect_events(&bytes, codes[i].valid ? text : "E1002 ");
    }
    add_frame(&bytes, 0x88, "\x03\xe8\xff", 3);
    expect_events(&bytes, "E1007 ");
    hc_buf_release(&bytes);
}

static void test_what_the_rfc_forbids_is_an_error(void **state)
{
    (void)state;
    struct hc_buf bytes = HC_BUF_INIT(1 << 20);
    static const struct {
        const char *bytes;
        size_t length;
        const char *expected;
    } cases[] = {
        {"\x81\x05hello", 7, "E1002 "},                                     /* not masked */
        {"\xc1\x80\0\0\0\0", 6, "E1002 "},                                  /* reserved bits */
        {"\xa1\x80\0\0\0\0", 6, "E1002 "},                                  /* */
        {"\x91\x80\0\0\0\0", 6, "E1002 "},                                  /* */
        {"\x83\x80\0\0\0\0", 6, "E1002 "},                                  /* opcodes */
        {"\x8b\x80\0\0\0\0", 6, "E1002 "},                                  /* */
        {"\x8f\x80\0\0\0\0", 6, "E1002 "},                                  /* */
        {"\x09\x80\0\0\0\0", 6, "E1002 "},                                  /* a ping in fragments */
        {"\x89\xfe\0\x7e\0\0\0\0", 8, "E1002 "},                            /* a long ping */
        {"\x80\x80\0\0\0\0", 6, "E1002 "},                                  /* continues nothing */
        {"\x01\x80\0\0\0\0\x81\x80\0\0\0\0", 12, "E1002 "},                 /* two at once */
        {"\x82\xfe\0\x7d\0\0\0\0", 8, "E1002 "},                            /* 125 in two bytes */
        {"\x82\xff\0\0\0\0\0\0\xff\xff\0\0\0\0", 14, "E1002 "},             /* 65535 in eight */
        {"\x82\xff\x80\0\0\0\0\x01\0\0\0\0\0\0", 14, "E1002 "},             /* the highest bit */
        {"\x82\xff\0\0\0\0\0\x01\x86\xa1\0\0\0\0", 14, "E1009 "},           /* 100001 */
        {"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 14, "E1009 "}, /* 2^63 - 1 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_buf_add(&bytes, cases[i].bytes, cases[i].length);
        expect_events(&bytes, cases[i].expected);
    }
    static const char *const not_text[] = {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "abc\xe2\x82"};
    for (size_t i = 0; i < sizeof not_text / sizeof not_text[0]; i++) {
        add_text(&bytes, 0x81, not_text[i]);
        expect_events(&bytes, "E1007 ");
        add_text(&bytes, 0x82, not_text[i]); /* is bytes like any other */
        add_text(&bytes, 0x81, "");
        hc_cleanup_free char *text = events_of(&bytes, 1000, 1);
        assert_memory_equal(text, "B", 1);
        hc_buf_reset(&bytes);
    }
    hc_buf_release(&bytes);
}

static void test_fragments_that_add_up_to_too_much_are_1009(void **state)
{
    (void)state;
    struct hc_buf bytes = HC_BUF_INIT(1 << 20);
    add_text(&bytes, 0x01, "0123456789");
    add_text(&bytes, 0x00, "0123456789");
    add_text(&bytes, 0x80, "x");
    hc_cleanup_free char *all = events_of(&bytes, 21, 1), *less = events_of(&bytes, 20, 1);
    assert_string_equal(all, "T21:01234567890123456789x ");
    assert_string_equal(less, "E1009 ");
    hc_buf_release(&bytes);
}

/* ---- frames of a server, as a client reads them ---- */

static void test_frames_of_a_server_are_read_unmasked(void **state)
{
    (void)state;
    static const char bytes[] = "\x82\x03one\x01\x02tw\x89\x00\x80\x01o\x88\x02\x03\xe8";
    struct hc_buf text = HC_BUF_INIT(1000);
    struct ws_frames frames;
    size_t used;
    ws_frames_init(&frames, 100);
    frames.from_server = true;
    for (size_t at = 0; at < sizeof bytes - 1;) { /* a byte at a time */
        enum ws_event event = ws_frames_take(&frames, bytes + at, 1, &used);
        at += used;
        if (event == WS_EVENT_MESSAGE)
            hc_buf_printf(&text, "%c:%.*s ", frames.opcode == WS_TEXT ? 'T' : 'B', (int)frames.length, frames.data);
        else if (event == WS_EVENT_CLOSE)
            hc_buf_printf(&text, "C:%u", frames.code);
        else
            assert_true(event == WS_EVENT_MORE || event == WS_EVENT_PING);
    }
    assert_string_equal(text.data, "B:one T:two C:1000");
    hc_buf_release(&text);
    ws_frames_release(&frames);
}

static void test_a_server_that_masks_is_an_error(void **state)
{
    (void)state;
    struct hc_buf bytes = HC_BUF_INIT(100);
    struct ws_frames frames;
    size_t used;
    add_text(&bytes, 0x81, "hello");
    ws_frames_init(&frames, 100);
    frames.from_server = true;
    assert_int_equal(ws_frames_take(&frames, bytes.data, bytes.length, &used), WS_EVENT_ERROR);
    assert_int_equal(frames.code, WS_PROTOCOL);
    hc_buf_release(&bytes);
    ws_frames_release(&frames);
}

static void test_what_a_client_masks_a_server_reads(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char header[WS_MASKED_MAX];
        struct hc_buf bytes = HC_BUF_INIT(100000);
        struct ws_frames frames;
        size_t used;
        hc_cleanup_free char *data = malloc(sizes[i] + 1);
        memset(data, 'x', sizes[i]);
        hc_buf_add(&bytes, header, ws_frame_masked(header, WS_BINARY, sizes[i], MASK));
        ws_mask(data, sizes[i], MASK);
        hc_buf_add(&bytes, data, sizes[i]);
        ws_mask(data, sizes[i], MASK);
        ws_frames_init(&frames, 100000);
        assert_int_equal(ws_frames_take(&frames, bytes.data, bytes.length, &used), WS_EVENT_MESSAGE);
        assert_int_equal(frames.length, sizes[i]);
        assert_memory_equal(frames.data, data, sizes[i]);
        hc_buf_release(&bytes);
        ws_frames_release(&frames);
    }
}

/* ---- connections ---- */

struct own {
    struct websocket *socket;
    int messages, drained, closed;
    unsigned code;
    bool pause_each;
    size_t to_send; /* pieces that `drained` goes on with */
    struct websocket_options options;
};

static void on_message(void *data, struct websocket *socket, bool text, const char *bytes, size_t length)
{
    struct own *own = data;
    own->messages++;
    if (own->pause_each)
        websocket_pause(socket);
    if (length == 3 && memcmp(bytes, "bye", 3) == 0)
        websocket_close(socket, WS_NORMAL, "as you wish");
    else
        websocket_send(socket, text, bytes, length);
}

static void on_socket_drained(void *data, struct websocket *socket)
{
    struct own *own = data;
    static char piece[65536];
    own->drained++;
    while (own->to_send > 0 && websocket_pending(socket) == 0) {
        own->to_send--;
        websocket_send(socket, false, piece, sizeof piece);
    }
}

static void on_closed(void *data, struct websocket *socket, unsigned code)
{
    struct own *own = data;
    assert_ptr_equal(socket, own->socket);
    own->socket = NULL;
    own->closed++;
    own->code = code;
}

static bool accept_socket(struct fixture *fixture, struct http_request *request)
{
    struct own *own = fixture->own;
    const struct websocket_handlers handlers = {
        .data = own, .message = on_message, .drained = on_socket_drained, .closed = on_closed};
    int status;
    const char *why;
    if (websocket_accept(fixture->loop, request, &own->options, &handlers, &own->socket, &status, &why) < 0)
        http_reply(request, status, "text/plain", why, strlen(why));
    return true;
}

static struct own new_own(struct fixture *fixture)
{
    fixture->own_handle = accept_socket;
    return (struct own){.options = {.message_max = 1 << 20, .close_time = MS(300)}};
}

#define HANDSHAKE(more)                                                                                                \
    "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" more   \
    "\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

/* The example of RFC 6455, 1.3. */
static size_t shake_hands(struct client *client)
{
    static const char ANSWER[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    say(client, HANDSHAKE(KEY));
    until(client, client->got.length >= sizeof ANSWER - 1);
    assert_memory_equal(client->got.data, ANSWER, sizeof ANSWER - 1);
    return sizeof ANSWER - 1;
}

static void send_text(struct client *client, unsigned first, const char *text)
{
    struct hc_buf bytes = HC_BUF_INIT(1 << 20);
    add_text(&bytes, first, text);
    send_bytes(client, bytes.data, bytes.length);
    hc_buf_release(&bytes);
}

/* What the server sends next, with its header. */
static void expect_bytes(struct client *client, size_t *at, const char *bytes, size_t length)
{
    until(client, client->got.length >= *at + length);
    assert_memory_equal(client->got.data + *at, bytes, length);
    *at += length;
}

static void test_messages_go_both_ways(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = shake_hands(&client);
    send_text(&client, 0x81, "hello");
    expect_bytes(&client, &at, "\x81\x05hello", 7);
    send_text(&client, 0x89, "there?");
    expect_bytes(&client, &at, "\x8a\x06there?", 8);
    send_text(&client, 0x82, "\xff");
    expect_bytes(&client, &at, "\x82\x01\xff", 3);
    send_text(&client, 0x88,
              "\x0f\xa0"
              "done"); /* 4000 */
    expect_bytes(&client, &at, "\x88\x02\x0f\xa0", 4);
    until(&client, client.closed);
    assert_int_equal(client.got.length, at);
    assert_int_equal(own.closed, 1);
    assert_int_equal(own.code, 4000);
}

static void test_frames_that_come_with_the_handshake_are_heard(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    struct hc_buf bytes = HC_BUF_INIT(4096);
    hc_buf_add_str(&bytes, HANDSHAKE(KEY));
    add_text(&bytes, 0x81, "a");
    add_text(&bytes, 0x81, "b");
    send_bytes(&client, bytes.data, bytes.length);
    hc_buf_release(&bytes);
    until(&client, own.messages == 2);
    http_server_free(HC_TAKE_PTR(fixture->server));
    assert_int_equal(own.closed, 1);
    assert_int_equal(own.code, WS_ABNORMAL);
}

static void test_the_server_may_close(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    fixture->own = &own;
    hc_cleanup_client struct client polite = connect_client(fixture);
    size_t at = shake_hands(&polite);
    send_text(&polite, 0x81, "bye");
    expect_bytes(&polite, &at,
                 "\x88\x0d\x03\xe8"
                 "as you wish",
                 15);
    send_text(&polite, 0x81, "too late");
    pump_for(&polite, MS(50));
    assert_int_equal(own.closed, 0);
    assert_int_equal(websocket_send(own.socket, true, "x", 1), -EPIPE);
    send_text(&polite, 0x88, "\x03\xe8");
    until(&polite, polite.closed);
    assert_int_equal(polite.got.length, at);
    assert_int_equal(own.closed, 1);
    assert_int_equal(own.messages, 1);
    assert_int_equal(own.code, WS_NORMAL);
    /* One that does not answer is not waited for. */
    hc_cleanup_client struct client silent = connect_client(fixture);
    shake_hands(&silent);
    until(&silent, own.socket != NULL);
    websocket_pause(own.socket);
    websocket_close(own.socket, WS_GOING_AWAY, "");
    until(&silent, silent.closed);
    assert_int_equal(own.closed, 2);
    assert_int_equal(own.code, WS_GOING_AWAY);
}

static void test_nonsense_is_answered_with_its_code(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    own.options.message_max = 100;
    fixture->own = &own;
    static const struct {
        const char *bytes;
        size_t length;
        unsigned code;
    } cases[] = {{"\x81\x05hello", 7, WS_PROTOCOL},
                 {"\x81\x81\0\0\0\0\xff", 7, WS_NOT_TEXT},
                 {"\x82\xfe\x01\x00\0\0\0\0", 8, WS_TOO_BIG}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        size_t at = shake_hands(&client);
        send_bytes(&client, cases[i].bytes, cases[i].length);
        until(&client, client.closed);
        assert_true(client.got.length > at + 4);
        assert_int_equal((unsigned char)client.got.data[at], 0x88);
        unsigned code = (unsigned)(unsigned char)client.got.data[at + 2] << 8 | (unsigned char)client.got.data[at + 3];
        assert_int_equal(code, cases[i].code);
        assert_int_equal(own.code, cases[i].code);
    }
    assert_int_equal(own.closed, 3);
}

static void test_a_client_that_does_not_answer_pings_is_dropped(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    own.options.ping_time = MS(100);
    fixture->own = &own;
    hc_cleanup_client struct client alive = connect_client(fixture);
    size_t at = shake_hands(&alive);
    for (int i = 0; i < 4; i++) {
        expect_bytes(&alive, &at, "\x89\x00", 2);
        send_text(&alive, 0x8A, "");
    }
    assert_int_equal(own.closed, 0);
    until(&alive, alive.closed); /* it has fallen silent */
    assert_int_equal(own.closed, 1);
    assert_int_equal(own.code, WS_ABNORMAL);
}

static void test_messages_wait_while_the_owner_pauses(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    own.pause_each = true;
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    size_t at = shake_hands(&client);
    struct hc_buf bytes = HC_BUF_INIT(4096);
    for (int i = 0; i < 5; i++)
        add_text(&bytes, 0x81, "m");
    send_bytes(&client, bytes.data, bytes.length);
    hc_buf_release(&bytes);
    for (int i = 1; i <= 5; i++) {
        until(&client, own.messages == i);
        pump_for(&client, MS(10));
        assert_int_equal(own.messages, i);
        expect_bytes(&client, &at, "\x81\x01m", 3);
        websocket_resume(own.socket);
    }
    send_text(&client, 0x81, "bye"); /* while it is paused the close is heard all the same */
    until(&client, own.messages == 6);
    send_text(&client, 0x88, "\x03\xe8");
    until(&client, own.closed == 1);
}

static void test_a_sender_goes_on_as_the_client_reads(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    own.to_send = 256; /* of 64 KiB */
    fixture->own = &own;
    hc_cleanup_client struct client client = connect_client(fixture);
    say(&client, HANDSHAKE(KEY));
    client.paused = true;
    pump_for(&client, MS(200));
    assert_true(own.to_send > 0);
    assert_true(websocket_pending(own.socket) < 200000);
    client.paused = false;
    until(&client, own.to_send == 0);
    until(&client, client.got.length > (size_t)256 * 65536);
    assert_int_equal(own.closed, 0);
    client.fd = hc_close(client.fd);
    until(&client, own.closed == 1);
}

static void test_what_is_no_handshake_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct own own = new_own(fixture);
    fixture->own = &own;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET /ws HTTP/1.1\r\nHost: a\r\n\r\n", 426},
        {"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 426},
        {"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" KEY "\r\n", 426},
        {"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" KEY
         "Sec-WebSocket-Version: 8\r\n\r\n",
         426},
        {HANDSHAKE(""), 400},
        {HANDSHAKE("Sec-WebSocket-Key: c2hvcnQ=\r\n"), 400},
        {HANDSHAKE("Sec-WebSocket-Key: ????????????????????????\r\n"), 400},
        {HANDSHAKE(KEY KEY), 400},
        {"POST /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
         "13\r\n" KEY "\r\n",
         400},
        {"GET /ws HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" KEY "\r\n",
         400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_cleanup_client struct client client = connect_client(fixture);
        size_t at = 0;
        say(&client, cases[i].text);
        expect_reply(&client, &at, cases[i].status, NULL);
        assert_int_equal(strstr(client.got.data, "Sec-WebSocket-Version: 13\r\n") != NULL, cases[i].status == 426);
        assert_int_equal(strstr(client.got.data, "Upgrade: websocket\r\n") != NULL, cases[i].status == 426);
        assert_int_equal(strstr(client.got.data, "Connection: upgrade\r\n") != NULL, cases[i].status == 426);
    }
    assert_int_equal(own.closed, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_put_together),
        cmocka_unit_test(test_lengths_of_each_kind_are_read),
        cmocka_unit_test(test_a_close_ends_it),
        cmocka_unit_test(test_what_the_rfc_forbids_is_an_error),
        cmocka_unit_test(test_frames_of_a_server_are_read_unmasked),
        cmocka_unit_test(test_a_server_that_masks_is_an_error),
        cmocka_unit_test(test_what_a_client_masks_a_server_reads),
        cmocka_unit_test(test_fragments_that_add_up_to_too_much_are_1009),
        TEST(test_messages_go_both_ways),
        TEST(test_frames_that_come_with_the_handshake_are_heard),
        TEST(test_the_server_may_close),
        TEST(test_nonsense_is_answered_with_its_code),
        TEST(test_a_client_that_does_not_answer_pings_is_dropped),
        TEST(test_messages_wait_while_the_owner_pauses),
        TEST(test_a_sender_goes_on_as_the_client_reads),
        TEST(test_what_is_no_handshake_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
