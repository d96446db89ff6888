import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/** Prints for each pair of arguments (codec, file) what Kafka's reader makes of the file. */
public class Decompress {
    public static void main(String[] args) throws Exception {
        for (int i = 0; i < args.length; i += 2) {
            String said;
            try {
                ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[i + 1])));
                InputStream in = Compression.of(args[i]).build()
                    .wrapForInput(data, (byte) 2, BufferSupplier.NO_CACHING);
                java.util.zip.CRC32 crc = new java.util.zip.CRC32();
                byte[] piece = new byte[1000];
                long size = 0;
                for (int got = in.read(piece); got > 0; got = in.read(piece)) {
                    crc.update(piece, 0, got);
                    size += got;
                }
                said = size + " " + crc.getValue();
            } catch (Throwable error) {
                said = "refused " + error;
            }
            System.out.println(said.replace('\n', ' '));
        }
    }
}
