import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageSizeAccumulator;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;

/**
 * Kafka's own classes as an oracle: what they make of bytes, of JSON, and of nothing.
 *
 * A batch of questions comes on standard input behind its length in bytes, and its answers leave the same way. All
 * numbers are big-endian. A question is
 *
 *   int8 what, int16 length and name of the message, int16 version, int32 length and body
 *
 *   PARSE     body: bytes of a message            answers: the message written again, its JSON
 *   BUILD     body: JSON of a message             answers: the message written, its JSON
 *   INVENT    body: int32 seed                    answers: a message written, its JSON, the same with tags nobody knows
 *   VERSIONS  body: empty                         answers: int16 first and int16 last version of the message
 *   HEADERS   body: int16 API key, no name        answers: the header of a request, and of its response
 *
 * An answer is int8 1 and, for each thing answered, an int32 length and its bytes; or int8 0 and, likewise, why not.
 */
public final class MessageOracle {
    private static final int PARSE = 0;
    private static final int BUILD = 1;
    private static final int INVENT = 2;
    private static final int VERSIONS = 3;
    private static final int HEADERS = 4;

    private static final int CORRELATION_ID = 77;
    private static final String CLIENT_ID = "me";
    private static final int BATCH_BYTES_MAX = 256 << 20;
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
    };
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Kind> KINDS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                return;
            }
            if (size < 0 || size > BATCH_BYTES_MAX)
                throw new IOException("a batch of " + size + " bytes");
            ByteBuffer batch = ByteBuffer.wrap(in.readNBytes(size));
            ByteArrayOutputStream answers = new ByteArrayOutputStream();
            DataOutputStream answering = new DataOutputStream(answers);
            while (batch.hasRemaining())
                answer(batch, answering);
            out.writeInt(answers.size());
            answers.writeTo(out);
            out.flush();
        }
    }

    private static void answer(ByteBuffer batch, DataOutputStream out) throws IOException {
        int what = batch.get();
        String name = new String(taken(batch, batch.getShort()), StandardCharsets.UTF_8);
        short version = batch.getShort();
        byte[] body = taken(batch, batch.getInt());
        byte[][] blobs;
        boolean isAnswered = true;
        try {
            blobs = answered(what, name, version, body);
        } catch (Exception | LinkageError wrong) {
            Throwable cause = wrong instanceof InvocationTargetException ? wrong.getCause() : wrong;
            blobs = new byte[][] {cause.toString().getBytes(StandardCharsets.UTF_8)};
            isAnswered = false;
        }
        out.writeByte(isAnswered ? 1 : 0);
        for (byte[] blob : blobs) {
            out.writeInt(blob.length);
            out.write(blob);
        }
    }

    private static byte[][] answered(int what, String name, short version, byte[] body) throws Exception {
        if (what == HEADERS)
            return headers(ByteBuffer.wrap(body).getShort(), version);
        Kind kind = Kind.named(name);
        switch (what) {
            case PARSE: {
                Message message = kind.parse(body, version);
                return new byte[][] {written(message, version), kind.told(message, version)};
            }
            case BUILD: {
                Message message = kind.built(JSON.readTree(body), version);
                return new byte[][] {written(message, version), kind.told(message, version)};
            }
            case INVENT: {
                int seed = ByteBuffer.wrap(body).getInt();
                Message message = kind.parse(invented(kind, version, seed, false), version);
                byte[] strange = invented(kind, version, seed, true);
                return new byte[][] {written(message, version), kind.told(message, version), strange};
            }
            case VERSIONS:
                return new byte[][] {ByteBuffer.allocate(4).putShort(kind.first).putShort(kind.last).array()};
            default:
                throw new IllegalArgumentException("no question has the number " + what);
        }
    }

    private static byte[][] headers(short key, short version) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        short requestHeaderVersion = type.requestHeaderVersion(version);
        RequestHeaderData request = new RequestHeaderData().setRequestApiKey(key).setRequestApiVersion(version)
            .setCorrelationId(CORRELATION_ID).setClientId(CLIENT_ID);
        if (requestHeaderVersion >= 2)
            request.unknownTaggedFields().add(new RawTaggedField(Inventor.UNKNOWN_TAGS[0], new byte[] {1, 2, 3}));
        ResponseHeaderData response = new ResponseHeaderData().setCorrelationId(CORRELATION_ID);
        return new byte[][] {
            written(request, requestHeaderVersion), written(response, type.responseHeaderVersion(version))
        };
    }

    private static byte[] taken(ByteBuffer buffer, int length) {
        byte[] bytes = new byte[length];
        buffer.get(bytes);
        return bytes;
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        MessageSizeAccumulator size = new MessageSizeAccumulator();
        message.addSize(size, cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size.totalSize());
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return exactly(buffer);
    }

    private static byte[] exactly(ByteBuffer buffer) {
        if (buffer.hasRemaining())
            throw new IllegalStateException(buffer.remaining() + " bytes fewer than announced");
        return buffer.array();
    }

    /** Written from the schema and not from an object: values at their default travel too, and so do unknown tags. */
    private static byte[] invented(Kind kind, short version, int seed, boolean hasUnknownTags) throws Exception {
        if (version < kind.first || version > kind.last)
            throw new IllegalArgumentException("versions are " + kind.first + " to " + kind.last);
        Schema schema = kind.schemas[version];
        for (boolean hasTaggedStructs : new boolean[] {true, false}) {
            Object value = new Inventor(seed, hasTaggedStructs, hasUnknownTags).invent(schema);
            ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(value));
            schema.write(buffer, value);
            byte[] bytes = exactly(buffer);
            try {
                kind.parse(bytes, version);
                return bytes;
            } catch (RuntimeException refused) {
                // The schema of a tagged struct that may be null does not have the mark that its reader wants.
                if (!hasTaggedStructs)
                    throw refused;
            }
        }
        throw new AssertionError("the second try returns or throws");
    }

    /** One of Kafka's message classes, with its schemas and its converter from and to JSON. */
    private static final class Kind {
        final short first;
        final short last;
        final Schema[] schemas;
        private final Constructor<?> constructor;
        private final Method read;
        private final Method write;

        private Kind(Class<?> made) throws ReflectiveOperationException {
            Class<?> converter = Class.forName(made.getName() + "JsonConverter");
            constructor = made.getConstructor();
            read = converter.getMethod("read", JsonNode.class, short.class);
            write = converter.getMethod("write", made, short.class);
            first = made.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            last = made.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            schemas = (Schema[]) made.getField("SCHEMAS").get(null);
        }

        /** By its name, which for requests and responses goes on with Data. */
        static Kind named(String name) throws ReflectiveOperationException {
            Kind known = KINDS.get(name);
            if (known != null)
                return known;
            for (String place : PACKAGES) {
                for (String suffix : new String[] {"Data", ""}) {
                    Class<?> found;
                    try {
                        found = Class.forName(place + name + suffix);
                    } catch (ClassNotFoundException elsewhere) {
                        continue;
                    }
                    Kind kind = new Kind(found);
                    KINDS.put(name, kind);
                    return kind;
                }
            }
            throw new ClassNotFoundException(name);
        }

        Message parse(byte[] bytes, short version) throws ReflectiveOperationException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            Message message = (Message) constructor.newInstance();
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining())
                throw new IllegalStateException(buffer.remaining() + " of " + bytes.length + " bytes are left over");
            return message;
        }

        Message built(JsonNode node, short version) throws ReflectiveOperationException {
            return (Message) read.invoke(null, node, version);
        }

        byte[] told(Message message, short version) throws ReflectiveOperationException, IOException {
            return JSON.writeValueAsBytes(write.invoke(null, message, version));
        }
    }

    /**
     * Makes up a value of any type. The seed decides all of it, and its remainder by eight says what is null: 0 and 4
     * nothing; 1 and 5 scalars; 2 arrays and structs; 6 those of them that hold no other that could be; 3 and 7 chance.
     */
    private static final class Inventor {
        private static final int LENGTH_MAX = 3;
        private static final String[] TEXTS = {
            "", "a", "topic", "Gr\u00fc\u00dfe \ud83c\udf0d", "x".repeat(126), "y".repeat(127), "\0"
        };
        private static final int[] SIZES = {0, 1, 2, 126, 127, 128, 600};
        private static final long[] NUMBERS = {0, 1, -1, Long.MIN_VALUE, Long.MAX_VALUE, 0x123456789abcdefL, 100};
        private static final double[] FRACTIONS = {0.0, -0.5, 1.5, Double.MAX_VALUE, Double.MIN_VALUE};
        // Far from those in use: Kafka's readers refuse a tag that another version of the message knows.
        static final int[] UNKNOWN_TAGS = {126, 4000, Integer.MAX_VALUE};

        private final Random random;
        private final Random unknown;
        private final int nulls;
        private final boolean hasTaggedStructs;
        private final boolean hasUnknownTags;

        Inventor(int seed, boolean hasTaggedStructs, boolean hasUnknownTags) {
            random = new Random(seed);
            unknown = new Random(~seed);
            nulls = Math.floorMod(seed, 8);
            this.hasTaggedStructs = hasTaggedStructs;
            this.hasUnknownTags = hasUnknownTags;
        }

        Object invent(Type type) {
            boolean isCompound = type.isArray() || type instanceof Schema;
            if (type.isNullable() && isNull(type, isCompound))
                return null;
            if (type.isArray()) {
                Object[] elements = new Object[nulls % 4 == 3 ? random.nextInt(LENGTH_MAX + 1) : 1 + random.nextInt(2)];
                for (int index = 0; index < elements.length; index++)
                    elements[index] = invent(type.arrayElementType().get());
                return elements;
            }
            if (type instanceof Schema)
                return struct((Schema) type);
            if (type instanceof TaggedFields)
                return tagged((TaggedFields) type);
            return scalar(type.toString().replace("COMPACT_", "").replace("NULLABLE_", ""));
        }

        private boolean isNull(Type type, boolean isCompound) {
            switch (nulls) {
                case 1:
                case 5:
                    return !isCompound;
                case 2:
                    return isCompound;
                case 6:
                    return isCompound && !holdsNullable(type);
                case 3:
                case 7:
                    return random.nextInt(3) == 0;
                default:
                    return false;
            }
        }

        /** Whether an array or struct further inside could be null. */
        private static boolean holdsNullable(Type type) {
            if (type.isArray())
                return isNullableOrHolds(type.arrayElementType().get());
            if (type instanceof Schema) {
                for (BoundField field : ((Schema) type).fields()) {
                    if (isNullableOrHolds(field.def.type))
                        return true;
                }
            }
            if (type instanceof TaggedFields) {
                for (Field field : ((TaggedFields) type).fields().values()) {
                    if (isNullableOrHolds(field.type))
                        return true;
                }
            }
            return false;
        }

        private static boolean isNullableOrHolds(Type type) {
            boolean isCompound = type.isArray() || type instanceof Schema;
            return isCompound && type.isNullable() || holdsNullable(type);
        }

        private Struct struct(Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields())
                struct.set(field, invent(field.def.type));
            return struct;
        }

        private NavigableMap<Integer, Object> tagged(TaggedFields type) {
            NavigableMap<Integer, Object> values = new TreeMap<>();
            for (Map.Entry<Integer, Field> entry : type.fields().entrySet()) {
                boolean isLeftOut = entry.getValue().type instanceof Schema && !hasTaggedStructs;
                if (!isLeftOut && (nulls % 4 != 3 || random.nextBoolean()))
                    values.put(entry.getKey(), invent(entry.getValue().type));
            }
            if (hasUnknownTags) {
                for (int tag : UNKNOWN_TAGS) {
                    byte[] data = new byte[SIZES[unknown.nextInt(SIZES.length)]];
                    unknown.nextBytes(data);
                    values.put(tag, new RawTaggedField(tag, data));
                }
            }
            return values;
        }

        private Object scalar(String type) {
            long number = NUMBERS[random.nextInt(NUMBERS.length)];
            switch (type) {
                case "BOOLEAN":
                    return random.nextBoolean();
                case "INT8":
                    return (byte) (number == Long.MIN_VALUE ? Byte.MIN_VALUE : number);
                case "INT16":
                    return (short) (number == Long.MIN_VALUE ? Short.MIN_VALUE : number);
                case "UINT16":
                    return (int) number & 0xffff;
                case "INT32":
                    return (int) (number == Long.MIN_VALUE ? Integer.MIN_VALUE : number);
                case "UINT32":
                    return number & 0xffffffffL;
                case "INT64":
                    return number;
                case "FLOAT64":
                    return FRACTIONS[random.nextInt(FRACTIONS.length)];
                case "UUID":
                    return random.nextInt(3) == 0 ? Uuid.ZERO_UUID : new Uuid(number, random.nextLong());
                case "STRING":
                    return TEXTS[random.nextInt(TEXTS.length)];
                case "BYTES":
                    return bytes();
                case "RECORDS":
                    return MemoryRecords.readableRecords(bytes());
                default:
                    throw new IllegalArgumentException("no value is known for " + type);
            }
        }

        private ByteBuffer bytes() {
            byte[] data = new byte[SIZES[random.nextInt(SIZES.length)]];
            random.nextBytes(data);
            return ByteBuffer.wrap(data);
        }
    }
}
