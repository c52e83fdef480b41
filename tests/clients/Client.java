import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Client [URL]: sends six tokens to the demo model, prints which token each one takes most from. Java 16 or later
 * and no library: an array prints as JSON, and a tensor of the answer is one string of base64.
 */
public class Client {
    record Tensor(int[] shape, FloatBuffer data) {
        static Tensor find(String json, String name) {
            String object = '"' + name + "\":\\{\"shape\":\\[([0-9,]*)\\],\"dtype\":\"float32\",\"data\":\"([^\"]*)\"";
            Matcher m = Pattern.compile(object).matcher(json);
            if (!m.find())
                throw new IllegalArgumentException("no tensor " + name + " in " + json);
            int[] shape = Arrays.stream(m.group(1).split(",")).mapToInt(Integer::parseInt).toArray();
            byte[] bytes = Base64.getDecoder().decode(m.group(2));
            return new Tensor(shape, ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer());
        }
    }

    static String post(String url, String json) throws IOException, InterruptedException {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(json)).build();
        for (int left = 5;; left--) {
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() == 200)
                return answer.body();
            if (answer.statusCode() != 503 || left == 0)
                throw new IOException(answer.statusCode() + ": " + answer.body());
            Thread.sleep(1000 * answer.headers().firstValueAsLong("Retry-After").orElse(1));
        }
    }

    public static void main(String[] args) throws Exception {
        String url = args.length > 0 ? args[0] : "http://127.0.0.1:8080";
        String[] words = "the cat sat on the mat".split(" ");
        float[][] x = {
            {1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
            {1, 1, 1, 0, 1, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1},
            {1, 2, 4, 0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1},
            {1, 3, 9, 0, 0, 0, 1, 0, 1, -1, 1, 1, -1, -1, -1, -1},
            {1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
            {1, 5, 25, 0, 1, 0, 0, 0, -1, -1, 1, -1, -1, -1, -1, -1}};
        String answer = post(url + "/v1/models/demo/attention", "{\"inputs_embeds\":" + Arrays.deepToString(x)
                + ",\"return_attentions\":{\"heads\":[0]},\"encoding_format\":\"base64\"}");

        FloatBuffer attention = Tensor.find(answer, "attentions").data();
        for (int i = 0; i < words.length; i++) {
            int best = 0;
            float[] row = new float[words.length];
            attention.get(row);
            for (int j = 1; j < row.length; j++)
                best = row[j] > row[best] ? j : best;
            System.out.printf(Locale.ROOT, "%s looks at %s: %.4f%n", words[i], words[best], row[best]);
        }
        Tensor outputs = Tensor.find(answer, "outputs");
        double sum = 0;
        while (outputs.data().hasRemaining())
            sum += outputs.data().get();
        System.out.printf(Locale.ROOT, "outputs [%d,%d], sum %.4f%n", outputs.shape()[0], outputs.shape()[1], sum);
    }
}
