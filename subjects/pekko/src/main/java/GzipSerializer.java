import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.NotSerializableException;
import java.io.UncheckedIOException;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import org.apache.pekko.actor.ExtendedActorSystem;
import org.apache.pekko.serialization.JavaSerializer;
import org.apache.pekko.serialization.Serializer;
import org.apache.pekko.serialization.SerializerWithStringManifest;

/**
 * Compresses the output of the hand-written or Java's serializer by gzip, as Pekko's Jackson serializers do by
 * themselves.
 */
final class GzipSerializer extends SerializerWithStringManifest {
    private static final int IDENTIFIER = 4002;
    private static final String MANIFEST = "z";

    private final Serializer java;
    private final BinarySerializer binary;

    GzipSerializer(ExtendedActorSystem system) {
        boolean usesJava = system.settings().config().getString("reflection.compressed").equals("java");
        java = usesJava ? new JavaSerializer(system) : null;
        binary = usesJava ? null : new BinarySerializer();
    }

    @Override
    public int identifier() {
        return IDENTIFIER;
    }

    @Override
    public String manifest(Object ball) {
        return MANIFEST;
    }

    @Override
    public byte[] toBinary(Object ball) {
        byte[] plain = java == null ? binary.toBinary(ball) : java.toBinary(ball);
        ByteArrayOutputStream packed = new ByteArrayOutputStream(plain.length);
        try (GZIPOutputStream out = new GZIPOutputStream(packed)) {
            out.write(plain);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        return packed.toByteArray();
    }

    @Override
    public Object fromBinary(byte[] bytes, String manifest) throws NotSerializableException {
        if (!manifest.equals(MANIFEST)) {
            throw new NotSerializableException(manifest);
        }
        byte[] plain;
        try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(bytes))) {
            plain = in.readAllBytes();
        } catch (IOException broken) {
            throw new NotSerializableException("a ball that is no gzip: " + broken.getMessage());
        }
        return java == null ? binary.fromBinary(plain, binary.manifest(null)) : java.fromBinary(plain);
    }
}
